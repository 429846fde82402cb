"""Unions of intervals against counting every ns."""

from __future__ import annotations

import random

import pytest

from experiments.metrics.intervals import Intervals


@pytest.mark.parametrize("seed", range(50))
def test_within_and_without_agree_with_counting(seed):
    rng = random.Random(seed)

    def draw():
        return [(start, start + rng.randrange(0, 9)) for start in (rng.randrange(60) for _ in range(rng.randrange(8)))]

    first, second = draw(), draw()
    points = {at for start, end in first for at in range(start, end)}
    taken = {at for start, end in second for at in range(start, end)}
    made, left = Intervals(first), Intervals(first).without(Intervals(second))
    for _ in range(20):
        low, high = rng.randrange(-5, 75), rng.randrange(-5, 75)
        assert made.within(low, high) == len([at for at in points if low <= at < high])
        assert left.within(low, high) == len([at for at in points - taken if low <= at < high])


def test_touching_intervals_are_one_and_empty_ones_none():
    assert Intervals([(5, 7), (1, 3), (3, 5), (9, 9)]).pairs() == [(1, 7)]
    assert Intervals([]).within(0, 10) == 0
