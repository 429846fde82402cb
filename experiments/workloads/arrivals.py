"""Arrival schedules: integer ns from the start of the run, computed before it."""

from __future__ import annotations

import numpy as np


def poisson_arrivals_ns(rate_rps: float, count: int, rng: np.random.Generator) -> list[int]:
    """`count` arrivals of a Poisson process with `rate_rps` requests/s; the first is at 0. Non-decreasing, in ns.

    One generator draws the whole schedule. Several senders must share one schedule: with a copy of the seed in each,
    their arrivals coincide and the load is bursts, not a Poisson process.
    """
    if rate_rps <= 0:
        raise ValueError(f"rate_rps must be above 0, got {rate_rps}")
    gaps_s = rng.exponential(1 / rate_rps, size=count)
    gaps_s[:1] = 0.0
    return [int(t) for t in np.rint(np.cumsum(gaps_s) * 1e9)]


def burst_arrivals_ns(count: int) -> list[int]:
    """All `count` arrivals at 0."""
    return [0] * count
