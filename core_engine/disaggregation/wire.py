"""Wire: messages to and from a process that may stop reading or writing at any moment. Nothing here ever waits for it.

The other end is a multiprocessing.connection.Connection, whose framing of messages below 2 GiB this is.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any

HEAD = struct.Struct("!i")
PIECE = 1 << 20


class Wire:
    """The driver's end. `ended` once the other end is closed and everything that came before was given out."""

    def __init__(self, control: Connection) -> None:
        self._socket = socket.socket(fileno=_own(control))
        self._out, self._in = bytearray(), bytearray()
        self.ended = False

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send as much as the other end has room for; `flush` goes on with the rest."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._out += HEAD.pack(len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Send what was left."""
        try:
            while self._out:
                del self._out[: self._socket.send(self._out, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            return
        except OSError:  # it is gone, which `receive` will see
            self._out.clear()

    def receive(self) -> list[Any]:
        """The messages that are here whole."""
        try:
            while piece := self._socket.recv(PIECE, socket.MSG_DONTWAIT):
                self._in += piece
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        return self._whole()

    def _whole(self) -> list[Any]:
        found, at = [], 0
        while len(self._in) >= at + HEAD.size:
            (size,) = HEAD.unpack_from(self._in, at)
            if len(self._in) < at + HEAD.size + size:
                break
            found.append(pickle.loads(self._in[at + HEAD.size : at + HEAD.size + size]))
            at += HEAD.size + size
        del self._in[:at]
        return found

    def close(self) -> None:
        """The other end sees it when it reads next."""
        self._socket.close()


def _own(control: Connection) -> int:
    """A descriptor of its own, so that the connection can be let go."""
    try:
        return os.dup(control.fileno())
    finally:
        control.close()
