"""Connections whose request never begins: uvicorn waits for the head of a request as long as the client likes.

A connection has HEAD_S from its opening, or from the first byte of a further request, until its head is there; between
two requests it is uvicorn's keep-alive that counts. A body and an answer may take as long as they take.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PromptHeads(H11Protocol):
    """uvicorn's protocol, which closes a connection whose head is late."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on waiting while a head is not whole, and stop once it is."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._cut)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cut(self) -> None:
        if self.transport.is_closing():
            return
        begun, _ = self.conn.trailing_data
        if begun:  # who has sent nothing may take an answer for that of its first request
            self.transport.write(TOO_LATE)
        self.transport.close()
