"""The only source of time of the engine, so that a simulated run can move it by itself."""

from __future__ import annotations

import time
from typing import Protocol

NS = 1_000_000_000


class Clock(Protocol):
    """Monotonic time in nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since the clock was made."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


class MonotonicClock:
    """Real time; 0 is the moment of construction, or that of another process's clock where its origin is given."""

    def __init__(self, origin_ns: int | None = None) -> None:
        self.origin_ns = time.perf_counter_ns() if origin_ns is None else origin_ns

    def now_ns(self) -> int:
        """Nanoseconds since construction."""
        return time.perf_counter_ns() - self.origin_ns

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class VirtualClock:
    """Time that only moves when told: what a simulated step or a wait takes is added, and nobody waits for it."""

    def __init__(self, start_ns: int = 0) -> None:
        self.ns = start_ns

    def now_ns(self) -> int:
        """Nanoseconds since 0, as far as they have been passed."""
        return self.ns

    def sleep(self, seconds: float) -> None:
        """Pass that much time, at least 1 ns, so that who polls comes to an end."""
        self.ns += max(1, round(seconds * NS))

    def pass_ns(self, duration_ns: int) -> None:
        """Pass exactly that much time; ValueError for a negative one."""
        if duration_ns < 0:
            raise ValueError(f"time does not go back: {duration_ns} ns")
        self.ns += duration_ns

    def reach_ns(self, moment_ns: int) -> None:
        """Pass time up to a moment; one that is over changes nothing."""
        self.ns = max(self.ns, moment_ns)
