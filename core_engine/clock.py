"""The only source of time of the engine, so that a simulated run can move it by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time in nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since the clock was made."""
        ...


class MonotonicClock:
    """Real time; 0 is the moment of construction."""

    def __init__(self) -> None:
        self._origin_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        """Nanoseconds since construction."""
        return time.perf_counter_ns() - self._origin_ns
