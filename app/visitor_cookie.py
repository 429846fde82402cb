"""The part of the page's server that names a browser: a random name in a cookie, given with the first page.

HttpOnly, since it is what tells one visitor's runs from another's (app/visitor.py) and no script needs it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

COOKIE = "trilemma_visitor"
NAME = re.compile(r"[0-9a-f]{32}")
YEAR_S = 365 * 24 * 3600
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Visitors:
    """ASGI middleware: whoever asks for a page without a name gets one."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on; a name goes out with the answer to a browser that asks for a page and has none."""
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope.get("headers", ())}
        asks = scope["type"] == "http" and "text/html" in headers.get("accept", "")
        if not asks or name_in(headers.get("cookie", "")) is not None:
            await self._app(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{COOKIE}={secrets.token_hex(16)}; Path=/; Max-Age={YEAR_S}; HttpOnly; SameSite=Lax"
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", cookie.encode("latin-1"))]
            await send(message)

        await self._app(scope, receive, named)


def name_in(cookies: str) -> str | None:
    """The name in a Cookie header; None where there is none of ours."""
    return next((value for value in values_in(cookies, COOKIE) if NAME.fullmatch(value)), None)


def values_in(cookies: str, name: str) -> list[str]:
    """The values that a Cookie header has under a name, whatever stands beside them."""
    pairs = (part.strip().partition("=") for part in cookies.split(";"))
    return [value for key, _, value in pairs if key == name]
