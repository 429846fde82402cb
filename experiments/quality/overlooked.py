"""What a mean overlooks: the candidate and slice that lose much while the mean of all items moves little.

Chosen on one half of the items, confirmed on the other, so that the luck of the choice is not taken for a finding:
- the halves are drawn within each slice, seeded;
- on the first half, of all candidates whose mean moves little, the slice with a signal that loses the most, if it loses
  LEAST_LOSS points or more;
- confirmed when on the second half, too, that slice loses as much, the mean moves little, and the one-sided exact test
  of the loss has p <= 5 % (one test: its candidate and slice were chosen elsewhere).
"Little" is at most LITTLE points. That an interval contains 0 does not make a change little: with few items it always
does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.proportions import loss_p, paired_difference_interval
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.quality.slices import ALL, baseline_rows, slice_places
from experiments.statistics import ALPHA

LEAST_LOSS = 8.0  # points
LITTLE = 2.0  # points
FOUND, NOT_CONFIRMED, NONE = "found", "not confirmed", "none"


@dataclass(frozen=True)
class Half:
    """One half of the items: changes in points, negative for a loss; p of the slice's loss, one-sided, exact."""

    items: int
    slice_items: int
    slice_change_points: float
    mean_change_points: float
    mean_ci95: tuple[float, float]
    p: float

    @property
    def mean_moves_little(self) -> bool:
        """Whether the mean alone would give no alarm."""
        return abs(self.mean_change_points) <= LITTLE

    @property
    def loses(self) -> bool:
        """Whether the slice loses enough to be named."""
        return self.slice_change_points <= -LEAST_LOSS


@dataclass(frozen=True)
class Overlooked:
    """The answer in a word and a sentence; candidate, slice and halves are None when nothing was chosen."""

    verdict: str
    sentence: str
    seed: int
    candidate: str | None = None
    slice: str | None = None
    chosen_on: Half | None = None
    confirmed_on: Half | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def find_overlooked(
    items: Sequence[Item],
    baseline: Sequence[ItemScore],
    candidates: Mapping[str, Sequence[ItemScore]],
    seed: int = 0,
) -> Overlooked:
    """Look for a slice's loss that the mean hides, among all candidates."""
    first, second = halves(items, seed)
    signal = {
        row.slice for row in baseline_rows([items[i] for i in first], [baseline[i] for i in first]) if row.signal
    } - {ALL}
    chosen = [
        (half.slice_change_points, name, place, half)
        for name, scores in candidates.items()
        for place in sorted(signal)
        if (half := _half(items, baseline, scores, first, place)).loses and half.mean_moves_little
    ]
    if not chosen:
        sentence = (
            f"none: on the half of the items that chooses, no slice with a signal loses {LEAST_LOSS:g} points or more "
            "while the mean moves little"
        )
        return Overlooked(NONE, sentence, seed)
    _, name, place, half = min(chosen, key=lambda one: one[:3])
    other = _half(items, baseline, candidates[name], second, place)
    confirmed = other.loses and other.mean_moves_little and other.p <= ALPHA
    sentence = (
        f"{name} loses {-half.slice_change_points:.1f} points of {place} on the half that chose it and "
        f"{-other.slice_change_points:.1f} on the other (exact p {other.p:.2g}), while the mean moves "
        f"{half.mean_change_points:+.1f} and {other.mean_change_points:+.1f}"
    )
    word = "" if confirmed else "not confirmed: "
    return Overlooked(FOUND if confirmed else NOT_CONFIRMED, word + sentence, seed, name, place, half, other)


def halves(items: Sequence[Item], seed: int) -> tuple[list[int], list[int]]:
    """Places of both halves, drawn within each slice; the first has the odd one."""
    first: list[int] = []
    second: list[int] = []
    draw = random.Random(seed)
    for name, places in slice_places(items).items():
        if name != ALL:
            shuffled = draw.sample(places, len(places))
            middle = (len(places) + 1) // 2
            first += shuffled[:middle]
            second += shuffled[middle:]
    return sorted(first), sorted(second)


def _half(
    items: Sequence[Item], baseline: Sequence[ItemScore], scores: Sequence[ItemScore], half: Sequence[int], name: str
) -> Half:
    own = [place for place in half if items[place].slice == name]
    lost, gained = _changes(baseline, scores, own)
    all_lost, all_gained = _changes(baseline, scores, half)
    low, high = paired_difference_interval(all_lost, all_gained, len(half)) if half else (0.0, 0.0)
    return Half(
        items=len(half),
        slice_items=len(own),
        slice_change_points=100 * (gained - lost) / max(1, len(own)),
        mean_change_points=100 * (all_gained - all_lost) / max(1, len(half)),
        mean_ci95=(100 * low, 100 * high),
        p=loss_p(lost, gained),
    )


def _changes(before: Sequence[ItemScore], after: Sequence[ItemScore], places: Sequence[int]) -> tuple[int, int]:
    lost = sum(before[i].correct and not after[i].correct for i in places)
    return lost, sum(after[i].correct and not before[i].correct for i in places)
