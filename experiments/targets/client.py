"""HTTP to one OpenAI-compatible server: plain calls before a run, streamed answers in it, each failure as one line.

Owns the connections, timeouts, retries and the key, which is never in a message. Knows no workload and no metrics.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from experiments.targets.resolver import PublicResolver
from experiments.targets.stream import Answer, BrokenStreamError, EventStream, error_line, load_json, one_line

CONNECT_TIMEOUT_S = 10.0
# Servers close a connection that nothing came through for 5 s (uvicorn). One that is closed just as a request is sent
# looks like a failure of the server, so ours are given up before that.
KEEP_ALIVE_S = 3.0
MOST_PLAIN_BYTES = 4 * 2**20
# Statuses after which the same request may succeed: too many requests, and a server or gateway that is busy.
RETRIED = (429, 502, 503, 504)
MOST_WAIT_S = 30.0
ERROR_BODY_BYTES = 65_536
# A silent server is given up after the timeout; one that sends bytes but no event or no end, after so many timeouts.
PATIENCE = 2
# An answer with more chunks than these for the tokens that were asked for, or more bytes, has no end of its own.
CHUNKS_A_TOKEN, SPARE_CHUNKS = 16, 4_096
MOST_ANSWER_BYTES = 64 * 2**20


class FailedRequestError(Exception):
    """A request that got no answer; the text is one line. `again`: whether trying once more is sensible."""

    def __init__(self, line: str, *, status: int | None = None, again: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(line)
        self.status = status
        self.again = again
        self.wait_s = wait_s


@dataclass
class Attempt:
    """One request and what came of it; times in ns. `error` is None when the answer ended in order."""

    send_ns: int
    answer: Answer = field(default_factory=Answer)
    end_ns: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    status: int | None = None
    attempts: int = 1


class Client:
    """A session with one server; an async context manager. `now_ns` is the clock that bytes are stamped by."""

    def __init__(
        self, address: str, *, key: str | None, timeout_s: float, now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self.address = address
        self.chunks_read = 0
        self._key = key
        self._timeout_s = timeout_s
        self._now_ns = now_ns

    async def __aenter__(self) -> Client:
        connect_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, resolver=PublicResolver()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=self._timeout_s),
            headers=None if self._key is None else {"Authorization": f"Bearer {self._key}"},
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, body) of a short call, the body as text unless it is JSON; FailedRequestError without an answer."""
        try:
            async with (
                asyncio.timeout(PATIENCE * self._timeout_s),
                self._session.request(method, self.address + path, json=body, allow_redirects=False) as response,
            ):
                raw = await response.content.read(MOST_PLAIN_BYTES)
                while len(raw) < MOST_PLAIN_BYTES and (more := await response.content.read(MOST_PLAIN_BYTES)):
                    raw += more
                text = raw.decode(errors="replace")
                with suppress(ValueError, RecursionError):
                    return response.status, load_json(text)
                return response.status, text
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise FailedRequestError(self._line(error)) from None

    async def stream(self, path: str, body: Mapping[str, Any], *, retries: int = 0) -> Attempt:
        """Send one request and read its answer to the end. Never raises for what the server does: see Attempt.error.

        A retry happens only before the first event; then `attempts` is above 1 and the time waited is in the latency.
        """
        made = Attempt(self._now_ns())
        while True:
            try:
                await self._once(path, body, made)
                made.finish_reason = made.answer.how_it_ended()
            except FailedRequestError as error:
                made.status = error.status
                if error.again and made.attempts <= retries and made.answer.first_event_ns is None:
                    made.attempts += 1
                    await asyncio.sleep(error.wait_s)
                    continue
                made.error = str(error)
            except BrokenStreamError as error:
                made.error = self._safe(str(error))
            made.end_ns = self._now_ns()
            return made

    async def _once(self, path: str, body: Mapping[str, Any], made: Attempt) -> None:
        try:
            async with (
                asyncio.timeout(PATIENCE * self._timeout_s) as patience,
                self._session.post(self.address + path, json=body, allow_redirects=False) as response,
            ):
                made.status = response.status
                if response.status != 200:
                    raise await self._refused(response)
                kind = response.headers.get("Content-Type", "")
                if "event-stream" not in kind:
                    raise BrokenStreamError(f"no stream but {one_line(kind) or 'no content type'}")
                await self._read(response.content, made.answer, patience, body.get("max_tokens") or 0)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise FailedRequestError(self._line(error), status=made.status, again=made.status is None) from None

    async def _read(
        self, content: aiohttp.StreamReader, answer: Answer, patience: asyncio.Timeout, max_tokens: int
    ) -> None:
        events, loop = EventStream(), asyncio.get_running_loop()
        most_chunks, read = CHUNKS_A_TOKEN * max_tokens + SPARE_CHUNKS, 0
        async for piece in content.iter_any():
            at_ns, before = self._now_ns(), self.chunks_read
            for data in events.feed(piece):
                answer.take(data, at_ns)
                self.chunks_read += 1
            if answer.done_ns is not None:
                return
            if self.chunks_read != before:
                patience.reschedule(loop.time() + PATIENCE * self._timeout_s)
            read += len(piece)
            if len(answer.chunks) > most_chunks or read > MOST_ANSWER_BYTES:
                raise BrokenStreamError(
                    f"the answer does not end: {len(answer.chunks)} chunks, {read:,} B for {max_tokens} tokens asked"
                )
        for data in events.close():
            answer.take(data, self._now_ns())
            self.chunks_read += 1

    async def _refused(self, response: aiohttp.ClientResponse) -> FailedRequestError:
        text = (await response.content.read(ERROR_BODY_BYTES)).decode(errors="replace")
        try:
            said = error_line(load_json(text))
        except (ValueError, RecursionError):
            said = one_line(text)
        line = self._safe(f"HTTP {response.status}{': ' + said if said else ''}")
        wait_s = _seconds(response.headers.get("Retry-After"))
        return FailedRequestError(line, status=response.status, again=response.status in RETRIED, wait_s=wait_s)

    def _line(self, error: Exception) -> str:
        """Why a connection failed."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {min(CONNECT_TIMEOUT_S, self._timeout_s):g} s"
        if type(error) is TimeoutError:  # ours: aiohttp's, of a socket that is silent, is one of its own
            return f"bytes came, but no event and no end within {PATIENCE * self._timeout_s:g} s"
        if isinstance(error, TimeoutError):
            return f"nothing came for {self._timeout_s:g} s"
        if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError | aiohttp.ClientSSLError):
            return self._safe(f"TLS: {one_line(str(error))}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"no connection: {error.os_error.strerror or one_line(str(error.os_error))}"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return "the server closed the connection before it answered"
        if isinstance(error, aiohttp.ClientPayloadError):
            return "the connection broke in the middle of the answer"
        return self._safe(f"{type(error).__name__}: {one_line(str(error))}")

    def _safe(self, line: str) -> str:
        """Some servers repeat the key that they refuse."""
        return line.replace(self._key, "…") if self._key else line


def _seconds(text: str | None) -> float:
    """Retry-After in seconds, at most MOST_WAIT_S; a date, which servers of this kind don't send, counts as 1 s."""
    if text is None:
        return 0.0
    try:
        return min(MOST_WAIT_S, max(0.0, float(text)))
    except ValueError:
        return 1.0
