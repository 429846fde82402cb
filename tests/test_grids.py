"""The part of a grid that the ordinary suite runs has every value, and the whole grid is still there."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from tests.grids import representative


def ordinary(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases if not case.marks]


def test_every_value_of_every_axis_is_ordinary_and_no_combination_is_lost() -> None:
    cases = representative("abc", range(5))
    assert len({case.values for case in cases}) == len(cases) == 15
    assert {one for one, _ in ordinary(cases)} == set("abc") and {two for _, two in ordinary(cases)} == set(range(5))
    assert len(ordinary(cases)) == 5


def test_each_turn_meets_other_combinations() -> None:
    found = ordinary(representative(range(4), range(4), times=3))
    assert len(found) == 12 and all(sum(one == value for one, _ in found) == 3 for value in range(4))


def test_as_many_diagonals_as_the_second_axis_is_long_hold_every_pair() -> None:
    axes = (range(13), range(4), range(3))
    found = ordinary(representative(*axes, times=4))
    assert len(found) == 52
    for one, other in combinations(range(3), 2):
        assert {(case[one], case[other]) for case in found} == set(product(axes[one], axes[other]))
