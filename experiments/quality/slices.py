"""Verdicts slice by slice, so that a mean can't hide one.

Pure functions over item scores. Two settings answer the same items; per slice and candidate:
- accuracy of both with Wilson's interval, the change in points with Tango's paired interval, and McNemar's exact test;
- a slice whose baseline interval contains chance has `no signal`: its accuracy can't tell a loss, so it is judged by
  the paired mean log-probability of the right answer instead;
- `better` / `worse`: p below 5 % after Holm over all slices and candidates (log-probability: and beyond 1 %);
  `no difference`: the paired interval lies within +-5 points (log-probability: +-5 %); `inconclusive` otherwise.
The row of all items together is tested apart: it is no slice, and counts in no slice's correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from experiments.proportions import mcnemar_exact, paired_difference_interval, wilson_interval
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.statistics import ALPHA, EQUIVALENCE_MARGIN, MIN_NOISE_FLOOR, holm, mean_interval

MARGIN_POINTS = 5.0
ALL = "all"
NO_SIGNAL = "no signal"


@dataclass(frozen=True)
class BaselineRow:
    """The baseline on one slice. accuracy and chance are shares; logprob: mean of the right answer's, nats."""

    slice: str
    items: int
    chance: float
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    signal: bool
    logprob: float


@dataclass(frozen=True)
class SliceRow:
    """A candidate against the baseline on one slice. Points are hundredths of accuracy; logprob_change in nats.

    scored_by: "accuracy", or "logprob" where the baseline has no signal. p_adjusted is Holm's.
    """

    candidate: str
    slice: str
    items: int
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    lost: int
    gained: int
    change_points: float
    change_ci95: tuple[float, float]
    logprob: float
    logprob_change: float
    logprob_ci95: tuple[float, float] | None
    scored_by: str
    p: float
    p_adjusted: float
    verdict: str
    reason: str


def baseline_rows(items: Sequence[Item], scores: Sequence[ItemScore]) -> list[BaselineRow]:
    """One row a slice in order of appearance, then the row of all."""
    rows = []
    for name, places in slice_places(items).items():
        correct = sum(scores[place].correct for place in places)
        chance = fmean(1 / len(items[place].choices) for place in places)
        low, high = wilson_interval(correct, len(places))
        logprob = fmean(scores[place].logprob for place in places)
        accuracy, signal = correct / len(places), not low <= chance <= high
        rows.append(BaselineRow(name, len(places), chance, correct, accuracy, (low, high), signal, logprob))
    return rows


def slice_places(items: Sequence[Item]) -> dict[str, list[int]]:
    """Places of each slice's items; with more than one slice, of all under ALL as well."""
    found: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault(item.slice, []).append(place)
    return {**found, ALL: list(range(len(items)))} if len(found) > 1 else found


def judge_slices(
    items: Sequence[Item], baseline: Sequence[ItemScore], candidates: Mapping[str, Sequence[ItemScore]]
) -> list[SliceRow]:
    """Rows by candidate and slice, corrected together."""
    places, base = slice_places(items), baseline_rows(items, baseline)
    pairs = [
        _Pair(name, row, [baseline[i] for i in places[row.slice]], [scores[i] for i in places[row.slice]])
        for name, scores in candidates.items()
        for row in base
    ]
    rows: dict[int, SliceRow] = {}
    for family in ([p for p in pairs if p.base.slice != ALL], [p for p in pairs if p.base.slice == ALL]):
        for pair, adjusted in zip(family, holm([pair.p for pair in family]), strict=True):
            rows[id(pair)] = pair.row(adjusted)
    return [rows[id(pair)] for pair in pairs]


class _Pair:
    """One candidate on one slice, before the correction."""

    def __init__(self, name: str, base: BaselineRow, before: list[ItemScore], after: list[ItemScore]) -> None:
        self.name, self.base, self.after = name, base, after
        self.lost = sum(b.correct and not a.correct for b, a in zip(before, after, strict=True))
        self.gained = sum(a.correct and not b.correct for b, a in zip(before, after, strict=True))
        self.differences = [a.logprob - b.logprob for b, a in zip(before, after, strict=True)]
        self.mean = mean_interval(self.differences)
        by_logprob = 1.0 if self.mean is None else self.mean.p
        self.p = mcnemar_exact(self.lost, self.gained) if base.signal else by_logprob

    def row(self, p_adjusted: float) -> SliceRow:
        total = len(self.after)
        correct = sum(score.correct for score in self.after)
        low, high = paired_difference_interval(self.lost, self.gained, total)
        points = (100 * low, 100 * high)
        verdict, reason = (self._by_accuracy if self.base.signal else self._by_logprob)(p_adjusted, points)
        return SliceRow(
            candidate=self.name,
            slice=self.base.slice,
            items=total,
            correct=correct,
            accuracy=correct / total,
            ci95=wilson_interval(correct, total),
            lost=self.lost,
            gained=self.gained,
            change_points=100 * (self.gained - self.lost) / total,
            change_ci95=points,
            logprob=fmean(score.logprob for score in self.after),
            logprob_change=fmean(self.differences),
            logprob_ci95=None if self.mean is None else (self.mean.low, self.mean.high),
            scored_by="accuracy" if self.base.signal else "logprob",
            p=self.p,
            p_adjusted=p_adjusted,
            verdict=verdict,
            reason=reason,
        )

    def _by_accuracy(self, p_adjusted: float, points: tuple[float, float]) -> tuple[str, str]:
        if p_adjusted < ALPHA:
            return ("better" if self.gained > self.lost else "worse"), "McNemar's exact test, Holm-corrected"
        if points[0] >= -MARGIN_POINTS and points[1] <= MARGIN_POINTS:
            return "no difference", f"interval inside +-{MARGIN_POINTS:g} points"
        return "inconclusive", f"interval neither excludes 0 nor lies inside +-{MARGIN_POINTS:g} points"

    def _by_logprob(self, p_adjusted: float, _: tuple[float, float]) -> tuple[str, str]:
        why = f"{NO_SIGNAL} in accuracy: scored by log-probability"
        if self.mean is None:
            return "inconclusive", f"{why}; fewer than two items"
        if p_adjusted < ALPHA and abs(math.expm1(self.mean.mean)) > MIN_NOISE_FLOOR:
            return ("better" if self.mean.mean > 0 else "worse"), why
        inside = abs(math.expm1(self.mean.low)) <= EQUIVALENCE_MARGIN >= abs(math.expm1(self.mean.high))
        return ("no difference" if inside else "inconclusive"), why


def row_json(row: BaselineRow | SliceRow) -> dict[str, Any]:
    """A row as JSON: intervals as lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(row).items()}
