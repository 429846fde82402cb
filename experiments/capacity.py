"""The highest rate at which objectives are still met: one search, for sweeps and for comparisons at equal objective.

Owns the bracket and the bisection. Knows no engine, no workload and no objective: `meets(rate)` answers for them.

The search doubles the rate while objectives are met (or halves it while they are missed) until it holds a rate that
meets and one that misses, and then bisects between the two by ratio, since a rate is known to so many percent. What it
says is bounded by what it saw: a ceiling that still meets, or a floor that already misses, is told apart from a rate
that was found, and a rate that misses below one that meets is noted and the lower answer given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GROWTH = 2.0
PRECISION = 0.05
MOST_PROBES = 16
# What an outcome is called; "found" needs a miss above and a hit below.
FOUND, UNDER_FLOOR, OVER_CEILING, UNSETTLED = "found", "misses at the floor", "meets at the ceiling", "out of probes"


@dataclass(frozen=True)
class Probe:
    """One rate that was asked about, and the answer."""

    rate: float
    met: bool


@dataclass(frozen=True)
class HighestRate:
    """What the search found, rates in the unit it was asked in.

    rate: the highest rate that meets with no miss seen at or below it; None when the floor misses already.
    missed_at: the lowest rate seen to miss; None when none was.
    outcome: "found" (missed_at is within the precision of rate), "misses at the floor", "meets at the ceiling" (the
    true limit is beyond), or "out of probes" (it lies between rate and missed_at, wider than asked; either may be None
    where nothing was seen on that side).
    met_above_a_miss: rates that met although a lower one missed, so "the highest" is not one number there.
    probes: every rate asked about now, in order.
    """

    rate: float | None
    missed_at: float | None
    outcome: str
    met_above_a_miss: tuple[float, ...]
    probes: tuple[Probe, ...]

    @property
    def monotone(self) -> bool:
        """Whether no rate met above one that missed."""
        return not self.met_above_a_miss

    def to_json(self) -> dict[str, Any]:
        """Every field as JSON."""
        return {
            "rate": self.rate,
            "missed_at": self.missed_at,
            "outcome": self.outcome,
            "monotone": self.monotone,
            "met_above_a_miss": list(self.met_above_a_miss),
            "probes": [{"rate": probe.rate, "met": probe.met} for probe in self.probes],
        }


def highest_rate(
    meets: Callable[[float], bool],
    *,
    start: float,
    floor: float,
    ceiling: float,
    precision: float = PRECISION,
    most_probes: int = MOST_PROBES,
    known: Mapping[float, bool] | None = None,
) -> HighestRate:
    """The highest rate within [floor, ceiling] for which `meets` is true.

    It begins at `start` and ends when the lowest miss is at most (1 + precision) times the highest hit, at a bound, or
    after `most_probes` questions. `known` are answers had before, as a sweep's points: they narrow the bracket, cost no
    question, and may show that the answer is not monotone. ValueError unless 0 < floor <= start <= ceiling, precision
    > 0 and most_probes >= 1. What `meets` raises passes through.
    """
    if not 0 < floor <= start <= ceiling < math.inf:
        raise ValueError(f"rates must be 0 < floor <= start <= ceiling, got {floor}, {start}, {ceiling}")
    if precision <= 0 or most_probes < 1:
        raise ValueError(f"precision must be above 0 and most_probes at least 1, got {precision} and {most_probes}")
    seen: dict[float, bool] = dict(known or {})
    probes: list[Probe] = []
    while (rate := _next_rate(seen, start, floor, ceiling, precision)) is not None:
        if len(probes) == most_probes:
            return _answer(seen, probes, UNSETTLED)
        seen[rate] = bool(meets(rate))
        probes.append(Probe(rate, seen[rate]))
    return _answer(seen, probes, _outcome(seen))


def _bracket(seen: Mapping[float, bool]) -> tuple[float | None, float | None]:
    """(highest hit below every miss, lowest miss)."""
    missed = min((rate for rate, met in seen.items() if not met), default=None)
    hits = (rate for rate, met in seen.items() if met and (missed is None or rate < missed))
    return max(hits, default=None), missed


def _next_rate(
    seen: Mapping[float, bool], start: float, floor: float, ceiling: float, precision: float
) -> float | None:
    """The next rate to ask about; None when the answers settle it."""
    met, missed = _bracket(seen)
    if met is None and missed is None:
        return start
    if missed is None and met is not None:
        return min(ceiling, max(floor, met * GROWTH)) if met < ceiling else None
    if met is None and missed is not None:
        return max(floor, min(ceiling, missed / GROWTH)) if missed > floor else None
    assert met is not None and missed is not None
    middle = math.sqrt(met * missed)
    # The second condition is the end of floating point: no number lies between the two.
    return middle if missed > met * (1 + precision) and met < middle < missed else None


def _outcome(seen: Mapping[float, bool]) -> str:
    met, missed = _bracket(seen)
    if met is None:
        return UNDER_FLOOR
    return OVER_CEILING if missed is None else FOUND


def _answer(seen: Mapping[float, bool], probes: list[Probe], outcome: str) -> HighestRate:
    met, missed = _bracket(seen)
    above = sorted(rate for rate, hit in seen.items() if hit and missed is not None and rate > missed)
    return HighestRate(met, missed, outcome, tuple(above), tuple(probes))
