"""Comparing at equal objective: for each arm the highest rate that still meets them, and the cost there.

Owns the search of one arm in one repeat, and the curves that come of it. The bisection is capacity.py's, the order of
repeats and the verdict are a comparison's.

Every probe is a run of the workload's requests, in their order, arriving by one seeded Poisson stream that is stretched
to the rate. A repeat searches anew, from the rate that the repeat before found. A rate is known to PRECISION, so a
change within it is none: the capacity curve's noise floor is never below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.arms import Arms
from experiments.capacity import FOUND, OVER_CEILING, PRECISION, UNDER_FLOOR, HighestRate, highest_rate
from experiments.statistics import CurveSamples, noise_floor
from experiments.summary import performance_curves
from experiments.sweep.measure import under_load
from experiments.sweep.points import Load
from experiments.targets import Measured

# The first search looks so far on either side of where it begins: the workload's own rate, or START_RPS in a burst.
REACH = 64.0
START_RPS = 1.0
# What a search takes when the limit is about a factor of two from where it begins; for the estimate of the time.
EXPECTED_PROBES = 6
CURVE = "capacity_rps"


class CapacitySearch:
    """Searches of several arms, one an arm and repeat."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms
        self.found: tuple[list[HighestRate], ...] = tuple([] for _ in arms.specs)

    def run(self, arm: int, repeat: int) -> None:
        """Search an arm and keep the run at the rate that was found; of a search without one, the slowest probe."""
        measured: dict[float, Measured] = {}

        def meets(rate_rps: float) -> bool:
            self._arms.check_cancel()
            workload = under_load(
                self._arms.workloads[arm], Load(rate_rps=rate_rps), arrivals="poisson", seed=self._arms.specs[arm].seed
            )
            measured[rate_rps] = self._arms.measure(arm, repeat, workload)
            return all(one["met"] for one in measured[rate_rps].metrics["objectives"])

        own = self._own_rate(arm)
        found = highest_rate(meets, start=self._start(arm, own), floor=own / REACH, ceiling=own * REACH)
        self.found[arm].append(found)
        kept = measured[min(measured) if found.rate is None else found.rate]
        self._arms.keep(arm, repeat, kept)
        self._arms.live.end_run(found.rate)

    def _own_rate(self, arm: int) -> float:
        return self._arms.workloads[arm].rate_rps or START_RPS

    def _start(self, arm: int, own: float) -> float:
        rates = [found.rate for found in self.found[arm] if found.rate is not None]
        return rates[-1] if rates else own

    def curves(self, pairs: int) -> list[CurveSamples]:
        """Capacity, and the curves that repeats measure, each at its arm's own highest rate."""
        limits = [[known_limit(found) for found in searches[:pairs]] for searches in self.found]
        baseline, candidate = limits
        floor = noise_floor(limits)
        floor = None if floor is None else max(floor, PRECISION)
        capacity = CurveSamples(CURVE, "highest", "higher", baseline, candidate, noise_floor=floor)
        others = performance_curves([metrics[:pairs] for metrics in self._arms.metrics])
        return [capacity, *(_only_where(limits, curve) for curve in others)]

    def to_json(self, slo: str | None) -> dict[str, Any]:
        """The `capacity` entry of a comparison: every search of every arm with its probes."""
        arms = [
            {"value": name, "searches": [found.to_json() for found in searches]}
            for name, searches in zip(self._arms.names, self.found, strict=True)
        ]
        return {"slo": slo, "unit": "requests/s", "precision": PRECISION, "arms": arms}

    def warnings(self) -> list[str]:
        """Searches that did not find a rate, and answers that were not of one piece."""
        said = []
        for name, searches in zip(self._arms.names, self.found, strict=True):
            bounds = {
                UNDER_FLOOR: "the objectives are missed even at the lowest rate tried",
                OVER_CEILING: "the objectives are met even at the highest rate tried, so its capacity is beyond it",
            }
            for outcome, text in bounds.items():
                count = sum(found.outcome == outcome for found in searches)
                if count:
                    said.append(f"{name}: {text} ({count} of {len(searches)} searches)")
            if not all(found.monotone for found in searches):
                said.append(f"{name}: a rate met the objectives above one that missed them; the lower one counts")
        return said


def known_limit(found: HighestRate) -> float | None:
    """The rate that a search found; None where it ran into a bound, which is no measurement of the limit."""
    return found.rate if found.outcome == FOUND else None


def _only_where(limits: Sequence[Sequence[float | None]], curve: CurveSamples) -> CurveSamples:
    """A curve without the samples of searches that found no rate."""
    baseline, candidate = (
        [value if limit is not None else None for value, limit in zip(samples, of_arm, strict=True)]
        for samples, of_arm in zip((curve.baseline, curve.candidate), limits, strict=True)
    )
    return replace(curve, baseline=baseline, candidate=candidate)
