"""Latency of one request, in s. One metric, one function."""

from __future__ import annotations

from itertools import pairwise

from experiments.metrics.events import NS_PER_S, Request, emissions


def ttft_s(request: Request) -> float | None:
    """Time to first token = first non-empty emission - scheduled arrival. Unit s. None without a token.

    From the schedule and not from the send: a late sender would otherwise hide the wait it caused.
    """
    emitted = emissions(request)
    return (emitted[0][0] - request["arrival_ns"]) / NS_PER_S if emitted else None


def e2e_s(request: Request) -> float | None:
    """End-to-end latency = last token - scheduled arrival. Unit s. None without a token."""
    emitted = emissions(request)
    return (emitted[-1][0] - request["arrival_ns"]) / NS_PER_S if emitted else None


def tpot_s(request: Request) -> float | None:
    """Time per output token = (t_last - t_first) / (n - n_first), n_first the tokens of the first emission. Unit s.

    TTFT is not in it, and a first chunk of several tokens leaves the divisor. None when n = n_first.
    """
    emitted = emissions(request)
    later = sum(tokens for _, tokens in emitted[1:])
    return (emitted[-1][0] - emitted[0][0]) / NS_PER_S / later if later else None


def itl_gaps(request: Request) -> list[tuple[float, int]]:
    """Inter-token latency: (gap in s, tokens of the emission that ended it) between consecutive emissions."""
    return [((after[0] - before[0]) / NS_PER_S, after[1]) for before, after in pairwise(emissions(request))]


def itl_s(request: Request) -> list[float]:
    """The gaps of `itl_gaps` alone. Unit s."""
    return [gap for gap, _ in itl_gaps(request)]
