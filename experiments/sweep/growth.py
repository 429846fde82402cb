"""Does the queue grow while a rate is sent? A slope test, not a threshold on a latency.

When requests come at rate r and are served at rate m < r, the wait of one that arrives at time t is t (r - m) / m: the
time to first token rises along a line of slope r / m - 1, which is by how much the rate is too high. The slope is
fitted through means of successive pieces of the run, since the waits of neighbours depend on each other, and judged by
a one-sided Student t at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from experiments.metrics.events import NS_PER_S, emissions, succeeded
from experiments.metrics.latency import ttft_s

MOST_PIECES, FEWEST_PIECES, FEWEST_IN_A_PIECE = 8, 4, 4
# The rate may be so much above what is served before it counts: below, a run of this length can't tell.
MATERIAL = 0.05
# Requests/s served below this share of those offered: the target fell behind.
KEPT_SHARE = 0.95


def growth(record: Mapping[str, Any]) -> dict[str, Any]:
    """{"offered_rps","served_rps","slope","slope_low","growing","behind"} of one run at a rate.

    served_rps = (n - 1) / (last end - first end) of the successful requests: filling and emptying cancel out, as they
    do not in requests / duration. slope: s of TTFT a s of arrival; slope_low: its one-sided 95 % bound. growing: that
    bound above 0 and the slope above MATERIAL. behind: served below KEPT_SHARE of offered while the queue grows. None
    where too few requests were sent to tell.
    """
    good = sorted((one for one in record["requests"] if succeeded(one)), key=lambda one: int(one["arrival_ns"]))
    offered = _rate([one["arrival_ns"] for one in record["requests"]])
    served = _rate([emissions(one)[-1][0] for one in good if emissions(one)])
    slope, low = slope_of(
        [one["arrival_ns"] / NS_PER_S for one in good if ttft_s(one) is not None],
        [value for one in good if (value := ttft_s(one)) is not None],
    )
    growing = None if slope is None or low is None else slope > MATERIAL and low > 0
    short = None if offered is None or served is None else served < KEPT_SHARE * offered
    return {
        "offered_rps": offered,
        "served_rps": served,
        "slope": slope,
        "slope_low": low,
        "growing": growing,
        "behind": None if growing is None or short is None else growing and short,
    }


def slope_of(times: Sequence[float], values: Sequence[float]) -> tuple[float | None, float | None]:
    """(slope, lower one-sided 95 % bound) of values over times, which ascend, through means of pieces of the run."""
    pieces = min(MOST_PIECES, len(times) // FEWEST_IN_A_PIECE)
    if pieces < FEWEST_PIECES or times[-1] <= times[0]:
        return None, None
    edges = [round(place * len(times) / pieces) for place in range(pieces + 1)]
    spans = list(pairwise(edges))
    x, y = [fmean(times[a:b]) for a, b in spans], [fmean(values[a:b]) for a, b in spans]
    centre = fmean(x)
    spread = sum((one - centre) ** 2 for one in x)
    if not spread:
        return None, None
    slope = sum((one - centre) * two for one, two in zip(x, y, strict=True)) / spread
    level = fmean(y) - slope * centre
    left = sum((two - level - slope * one) ** 2 for one, two in zip(x, y, strict=True))
    from scipy.special import stdtrit

    error = math.sqrt(left / (pieces - 2) / spread)
    return slope, slope - float(stdtrit(pieces - 2, 0.95)) * error


def _rate(times_ns: Sequence[int]) -> float | None:
    """(n - 1) / (last - first), a s; None where all are at once."""
    if len(times_ns) < 2 or max(times_ns) == min(times_ns):
        return None
    return (len(times_ns) - 1) * NS_PER_S / (max(times_ns) - min(times_ns))
