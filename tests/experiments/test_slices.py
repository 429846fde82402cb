"""Verdicts by slice and what a mean overlooks, on made outcomes with known truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from experiments.proportions import paired_difference_interval
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.quality.overlooked import FOUND, LITTLE, NONE, NOT_CONFIRMED, find_overlooked, halves
from experiments.quality.slices import ALL, SliceRow, baseline_rows, judge_slices

SLICES = ("facts", "rare", "code", "grammar")


def items_of(per_slice: int, slices: Sequence[str] = SLICES, choices: int = 4) -> list[Item]:
    return [
        Item(f"{name}-{i}", name, "p", tuple(f" {c}" for c in range(choices)), 0)
        for name in slices
        for i in range(per_slice)
    ]


def outcome(correct: bool, logprob: float = -1.0) -> ItemScore:
    other = logprob - 1 if correct else logprob + 1
    return ItemScore((logprob, other, -9.0, -9.0), 0)


def drawn(items: Sequence[Item], share: Callable[[Item], float], draw: random.Random) -> list[ItemScore]:
    return [outcome(draw.random() < share(item)) for item in items]


def flipped(
    items: Sequence[Item],
    before: Sequence[ItemScore],
    draw: random.Random,
    lost: Callable[[Item], float],
    gained: float,
) -> list[ItemScore]:
    """The candidate: each right answer is lost, and each wrong one gained, with a probability."""
    return [
        outcome(draw.random() >= lost(item) if score.correct else draw.random() < gained)
        for item, score in zip(items, before, strict=True)
    ]


def row(rows: Sequence[SliceRow], name: str) -> SliceRow:
    return next(found for found in rows if found.slice == name)


def test_a_tie_is_not_correct() -> None:
    assert not ItemScore((-1.0, -1.0), 0).correct and not ItemScore((-1.0, -1.0), 1).correct
    assert ItemScore((-1.0, -0.5, -2.0), 1).correct


def test_a_slice_that_loses_is_named_though_the_mean_hardly_moves() -> None:
    items = items_of(150)
    before = [outcome(i % 5 > 0) for i in range(len(items))]
    after = [
        outcome(b.correct and not (item.slice == "rare" and i % 10 < 3))
        for i, (item, b) in enumerate(zip(items, before, strict=True))
    ]
    rows = judge_slices(items, before, {"w4": after})
    assert row(rows, "rare").verdict == "worse" and row(rows, "rare").change_points == pytest.approx(-20)
    assert {row(rows, name).verdict for name in ("facts", "code", "grammar")} == {"no difference"}
    assert row(rows, ALL).change_points == pytest.approx(-5)
    assert row(rows, "rare").lost == 30 and row(rows, "rare").gained == 0


def test_p_is_corrected_over_slices_and_candidates_but_not_for_the_row_of_all() -> None:
    items = items_of(20)
    before = [outcome(True) for _ in items]
    after = [outcome(not (item.slice == "rare" and i % 20 < 6)) for i, item in enumerate(items)]
    one = row(judge_slices(items, before, {"a": after}), "rare")
    two = row(judge_slices(items, before, {"a": after, "b": before}), "rare")
    assert one.p == two.p == 2 / 64
    assert one.p_adjusted == pytest.approx(4 * 2 / 64) and two.p_adjusted == pytest.approx(8 * 2 / 64)
    assert row(judge_slices(items, before, {"a": after}), ALL).p_adjusted == 2 / 64


def test_a_slice_at_chance_has_no_signal_and_is_scored_by_log_probability() -> None:
    items = items_of(100, ("facts", "hard"))
    before = [outcome(item.slice == "facts" or i % 4 == 0, -3 + 0.01 * (i % 7)) for i, item in enumerate(items)]
    after = [ItemScore((b.logprobs[0] - 0.2 - 0.01 * (i % 3), *b.logprobs[1:]), 0) for i, b in enumerate(before)]
    base = {one.slice: one for one in baseline_rows(items, before)}
    assert base["facts"].signal and not base["hard"].signal and base["hard"].chance == 0.25
    hard = row(judge_slices(items, before, {"w4": after}), "hard")
    assert hard.scored_by == "logprob" and hard.verdict == "worse" and "no signal" in hard.reason
    assert hard.logprob_change == pytest.approx(-0.21, abs=1e-3)
    assert hard.logprob_ci95 is not None and hard.logprob_ci95[0] < -0.21 < hard.logprob_ci95[1] < -0.2
    assert row(judge_slices(items, before, {"same": before}), "hard").verdict == "no difference"


def test_few_items_without_a_change_are_not_called_equal() -> None:
    items = items_of(10, ("facts",))
    before = [outcome(True) for _ in items]
    assert row(judge_slices(items, before, {"a": before}), "facts").verdict == "inconclusive"
    assert [one.slice for one in baseline_rows(items, before)] == ["facts"]


@pytest.mark.slow
def test_equal_settings_raise_few_false_alarms() -> None:
    """A/A: both answer with the same chance; any of 8 tests that calls a difference is a false alarm."""
    draw, alarms, hidden, runs = random.Random(1), 0, 0, 200
    items = items_of(150)
    for _ in range(runs):
        before = drawn(items, lambda _: 0.7, draw)
        # As many lost as gained on average: 0.7 x 0.06 = 0.3 x 0.14.
        arms = {name: flipped(items, before, draw, lambda _: 0.06, 0.14) for name in ("a", "b")}
        rows = judge_slices(items, before, arms)
        alarms += any(found.verdict in ("better", "worse") for found in rows if found.slice != ALL)
        hidden += find_overlooked(items, before, arms, seed=0).verdict == FOUND
    assert alarms / runs < 0.05
    assert hidden / runs < 0.05


def test_a_real_loss_that_the_mean_hides_is_found() -> None:
    draw, found, runs = random.Random(2), 0, 20
    items = items_of(200, ("rare", *(f"slice{i}" for i in range(9))))
    for _ in range(runs):
        before = drawn(items, lambda _: 0.8, draw)
        worse = flipped(items, before, draw, lambda item: 0.2 if item.slice == "rare" else 0.0, 0.02)
        answer = find_overlooked(items, before, {"good": before, "w4": worse}, seed=3)
        found += (answer.verdict, answer.candidate, answer.slice) == (FOUND, "w4", "rare")
    assert found / runs > 0.8


def test_nothing_is_found_where_nothing_is_lost_or_everything_is() -> None:
    items = items_of(100)
    before = [outcome(i % 4 > 0) for i in range(len(items))]
    none = find_overlooked(items, before, {"same": before})
    assert none.verdict == NONE and none.candidate is None and none.sentence.startswith("none:")
    everywhere = [outcome(b.correct and i % 3 > 0) for i, b in enumerate(before)]
    assert find_overlooked(items, before, {"bad": everywhere}).verdict == NONE  # the mean shows it


def test_a_mean_that_falls_is_not_little_because_few_items_leave_it_uncertain() -> None:
    items = items_of(16)
    before = [outcome(True) for _ in items]
    first, second = halves(items, 0)
    lost = {place for half in (first, second) for place in [p for p in half if items[p].slice == "code"][:1]}
    after = [outcome(place not in lost) for place in range(len(items))]
    answer = find_overlooked(items, before, {"w4": after}, seed=0)
    low, high = paired_difference_interval(1, 0, len(first))
    assert low < 0 < high and 100 / len(first) > LITTLE  # the mean's interval contains 0; it moves by three points
    assert answer.verdict == NONE


def test_a_choice_that_the_other_half_does_not_bear_out_is_not_a_finding() -> None:
    items = items_of(60, (*SLICES, "a", "b", "c", "d"))
    before = [outcome(True) for _ in items]
    first, _ = halves(items, 0)
    lucky = [place for place in first if items[place].slice == "code"][:4]
    after = [outcome(place not in lucky) for place in range(len(items))]
    answer = find_overlooked(items, before, {"w4": after}, seed=0)
    assert answer.verdict == NOT_CONFIRMED and answer.slice == "code"
    assert answer.sentence.startswith("not confirmed: ")
    assert answer.confirmed_on is not None and answer.confirmed_on.slice_change_points == 0


def test_halves_share_nothing_and_split_every_slice() -> None:
    items = items_of(31)
    first, second = halves(items, 5)
    assert sorted(first + second) == list(range(len(items)))
    assert {name: sum(items[i].slice == name for i in first) for name in SLICES} == dict.fromkeys(SLICES, 16)
    assert halves(items, 5) == (first, second) != halves(items, 6)
