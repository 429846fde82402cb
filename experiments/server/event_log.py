"""The log of requests: a JSON line for each answered one, with the moments at which its tokens left the server.

Made to check a client's figures against: both saw the same stream. Times are ns of CLOCK_MONOTONIC (what Python's
perf_counter_ns reads on Linux), which every process of the machine shares.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ledger.errors import InputError


@dataclass
class RequestLines:
    """What is noted of one request. sends: [ns, tokens] of each write that held new tokens; a chunk without text or
    log-probabilities is not written, and its tokens count with the next. cache: the tier ("exact", "semantic") of each
    answer that was stored."""

    path: str
    received_ns: int
    id: str | None = None
    arm: str = "A"
    stream: bool = False
    status: int = 0
    sends: list[tuple[int, int]] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reasons: list[str | None] = field(default_factory=list)
    cache: list[str] = field(default_factory=list)
    error: str | None = None

    def sent(self, tokens: int) -> None:
        """Note a write that is about to happen."""
        self.sends.append((time.perf_counter_ns(), tokens))


class EventLog:
    """A file that grows; without one nothing is written."""

    def __init__(self, path: str | None) -> None:
        self._file: IO[str] | None = None
        if path is not None:
            try:
                self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until close
            except OSError as error:
                raise InputError("--log-events", path, f"a file that can be written ({error.strerror})") from None

    def write(self, lines: RequestLines) -> None:
        """Add a request's line."""
        if self._file is None:
            return
        values: dict[str, Any] = {**vars(lines), "ended_ns": time.perf_counter_ns()}
        values["first_send_ns"] = lines.sends[0][0] if lines.sends else None
        values["last_send_ns"] = lines.sends[-1][0] if lines.sends else None
        self._file.write(json.dumps(values, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
