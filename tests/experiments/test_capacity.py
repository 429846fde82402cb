"""The search for the highest rate: found, bounded, not monotone, out of probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.capacity import FOUND, OVER_CEILING, UNDER_FLOOR, UNSETTLED, HighestRate, highest_rate


def search(limit: float, **options: float) -> HighestRate:
    bounds = {"start": 1.0, "floor": 0.01, "ceiling": 1000.0, **options}
    return highest_rate(lambda rate: rate <= limit, **bounds)  # type: ignore[arg-type]


@given(limit=st.floats(0.02, 900), start=st.floats(0.02, 900), precision=st.floats(0.005, 0.5))
def test_the_limit_lies_between_the_hit_and_the_miss_within_the_precision(limit, start, precision):
    found = search(limit, start=start, precision=precision, most_probes=60)
    assert found.outcome == FOUND and found.monotone
    assert found.rate <= limit < found.missed_at <= found.rate * (1 + precision)
    assert len({probe.rate for probe in found.probes}) == len(found.probes)


def test_it_doubles_from_the_start_then_bisects_by_ratio():
    found = search(5.0, precision=0.2)
    assert [probe.rate for probe in found.probes] == pytest.approx([1, 2, 4, 8, 32**0.5, 4.757], rel=1e-3)
    assert [probe.met for probe in found.probes] == [True, True, True, False, False, True]


def test_a_ceiling_that_meets_is_not_a_rate_that_was_found():
    found = search(50.0, ceiling=20.0)
    assert (found.outcome, found.rate, found.missed_at) == (OVER_CEILING, 20.0, None)
    assert max(probe.rate for probe in found.probes) == 20.0


def test_a_floor_that_misses_has_no_rate():
    found = search(0.1, floor=0.5)
    assert (found.outcome, found.rate, found.missed_at) == (UNDER_FLOOR, None, 0.5)
    assert min(probe.rate for probe in found.probes) == 0.5


def test_out_of_probes_says_so_and_keeps_the_bracket():
    found = search(5.0, precision=0.01, most_probes=5)
    assert (found.outcome, len(found.probes)) == (UNSETTLED, 5)
    assert found.rate <= 5.0 < found.missed_at
    assert search(1e-3, floor=1e-6, most_probes=2).rate is None


def test_known_answers_narrow_the_bracket_without_a_question():
    found = search(5.0, known={4.0: True, 6.0: False}, precision=0.1)
    assert all(4.0 < probe.rate < 6.0 for probe in found.probes)
    assert search(5.0, known={5.0: True, 5.1: False}).probes == ()


def test_a_hit_above_a_miss_is_noted_and_the_lower_answer_given():
    found = search(5.0, known={8.0: True, 6.0: False, 4.0: True}, precision=0.1)
    assert not found.monotone and found.met_above_a_miss == (8.0,)
    assert found.rate <= 5.0
    assert found.to_json()["monotone"] is False


def test_a_noisy_answer_still_ends_within_the_probes():
    answers = iter([True, False] * 50)
    found = highest_rate(lambda _: next(answers), start=1, floor=0.1, ceiling=100, most_probes=20)
    assert found.rate < found.missed_at <= found.rate * 1.05


@pytest.mark.parametrize(
    "wrong", [{"floor": 0.0}, {"start": 0.001}, {"start": 2000.0}, {"precision": 0.0}, {"most_probes": 0},
              {"ceiling": float("inf")}],
)  # fmt: skip
def test_bounds_that_cannot_be_searched_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        search(5.0, **wrong)
