"""What the server refuses, as a status and OpenAI's error JSON. Every refusal is one line."""

from __future__ import annotations

from typing import Any

from ledger.errors import CannotRunError, InputError

LONGEST_MESSAGE = 500  # characters: a value that is refused may be a whole prompt
LIMITS = ("max_queue", "rate_limit_rps")  # refusals that end by themselves


class Refusal(Exception):
    """An HTTP status with its reason. param: the field that is wrong; retry_after_s: when it may be worth a try."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after_s = status, param, code, retry_after_s

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        message = " ".join(str(self).split())
        if len(message) > LONGEST_MESSAGE:
            half = LONGEST_MESSAGE // 2
            message = f"{message[:half]} ... {message[-half:]}"
        return {"error": {"message": message, "type": _kind(self.status), "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Retry-After where there is one, and what a 401 has to say."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


def refusal_of(error: Exception, *, retry_after_s: int = 1) -> Refusal:
    """The refusal for an error that a request's own values, or a limit, brought about."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError) and error.field in LIMITS:
        return Refusal(429, str(error), param=error.field, code="rate_limit_exceeded", retry_after_s=retry_after_s)
    if isinstance(error, InputError):
        return Refusal(400, str(error), param=error.field)
    if isinstance(error, CannotRunError):
        return Refusal(400, str(error))
    return Refusal(500, f"a fault of the server: {type(error).__name__}: {error}", code="internal_error")


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status == 401:
        return "authentication_error"
    return "server_error" if status >= 500 else "invalid_request_error"
