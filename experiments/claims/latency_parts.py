"""C42: do queueing, prefill, decode, stalls and host time make up the measured latency?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims.comparison import (
    FAILS,
    FEW_REPEATS,
    HOLDS,
    LIMITED,
    UNDECIDED,
    Compare,
    Verdict,
    arms,
    row,
    spec_of,
)
from experiments.metrics import PARTS

CLOSE, CLOSE_AT_P99 = 0.01, 0.03


def check(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """The waterfalls of two policies that spend the time differently, on mixed lengths."""
    spec = spec_of(options, repeats=FEW_REPEATS, variable="batching", values=["static", "continuous"], workload="mixed")
    result = compare(spec)
    middle, far = arms(result, "unexplained_share", "p50"), arms(result, "unexplained_share", "p99")
    parts = {part: arms(result, "latency_breakdown", part) for part in PARTS}
    evidence = row("parts", spec, result, unexplained_share_p50=middle, unexplained_share_p99=far, **parts)
    verdict, reason = judge(middle, far)
    return {"verdict": verdict, "reason": reason, "evidence": [evidence]}


def judge(middle: Sequence[float | None], far: Sequence[float | None]) -> Verdict:
    """From the share of latency that no timer explains, at the median and at p99, of each arm."""
    medians, tails = ([value for value in values if value is not None] for values in (middle, far))
    if not medians or not tails:
        return UNDECIDED, "no request was answered"
    found = (
        f"the parts leave {max(medians):.2%} of a request's latency unexplained at the median, {max(tails):.2%} at p99"
    )
    if max(medians) > CLOSE:
        return FAILS, found
    if max(tails) <= CLOSE:
        return HOLDS, found
    return LIMITED, f"{found}: within 1 % for most requests" + ("" if max(tails) <= CLOSE_AT_P99 else ", not for all")
