"""Intervals and exact tests of shares, against examples worked by hand and an independent search."""

from __future__ import annotations

import math
import random

import pytest
from scipy.optimize import minimize_scalar

from experiments.proportions import (
    Z95,
    binomial_tail,
    loss_p,
    mcnemar_exact,
    paired_difference_interval,
    wilson_interval,
)
from experiments.statistics import holm, mean_interval


def test_wilson_of_eight_in_ten() -> None:
    # By hand with z = 1.96: centre (0.8 + 3.8416/20) / 1.38416 = 0.716737, half 1.96 / 1.38416 sqrt(0.016 + 0.009604).
    low, high = wilson_interval(8, 10, z=1.96)
    assert low == pytest.approx(0.716737 - 0.226578, abs=1e-5)
    assert high == pytest.approx(0.716737 + 0.226578, abs=1e-5)


def test_wilson_at_the_ends_is_exact_and_keeps_a_width() -> None:
    assert wilson_interval(0, 10)[0] == 0 and wilson_interval(10, 10)[1] == 1
    assert wilson_interval(0, 10)[1] == pytest.approx(Z95**2 / (10 + Z95**2))
    with pytest.raises(ValueError):
        wilson_interval(3, 2)
    with pytest.raises(ValueError):
        wilson_interval(0, 0)


def test_mcnemar_by_counting_throws() -> None:
    assert mcnemar_exact(1, 5) == 2 * (1 + 6) / 64  # six changed items: 0 or 1 gained of 64 outcomes, twice
    assert mcnemar_exact(5, 1) == mcnemar_exact(1, 5)
    assert mcnemar_exact(3, 3) == 1 and mcnemar_exact(0, 0) == 1
    assert binomial_tail(2, 3) == 7 / 8
    assert loss_p(5, 0) == 1 / 32 and loss_p(0, 5) == 1


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(("lost", "gained", "total"), [(10, 3, 150), (1, 0, 20), (0, 7, 50), (30, 31, 150)])
def test_the_paired_interval_ends_where_the_score_test_does(lost: int, gained: int, total: int) -> None:
    for bound, expected in zip(paired_difference_interval(lost, gained, total), (Z95, -Z95), strict=True):
        assert restricted_z(lost, gained, total, bound) == pytest.approx(expected, abs=1e-4)


def restricted_z(lost: int, gained: int, total: int, delta: float) -> float:
    """z of the difference `delta`, its variance at the likeliest cells found by a numerical search."""

    def surprise(share_lost: float) -> float:
        cells = ((gained, share_lost + delta), (lost, share_lost), (total - lost - gained, 1 - 2 * share_lost - delta))
        return -sum(count * math.log(share) for count, share in cells if count)

    bounds = (max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12)
    found = minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-13}).x
    return float((gained - lost - total * delta) / math.sqrt(total * (2 * found + delta - delta**2)))


def test_items_that_did_not_change_still_leave_a_width() -> None:
    low, high = paired_difference_interval(0, 0, 150)
    assert (low, high) == pytest.approx((-(Z95**2) / (150 + Z95**2), Z95**2 / (150 + Z95**2)), abs=1e-9)
    with pytest.raises(ValueError):
        paired_difference_interval(3, 3, 5)


def test_the_paired_interval_covers_the_truth() -> None:
    draw = random.Random(7)
    truth, hits = 0.05, 0
    for _ in range(400):
        changes = [draw.random() for _ in range(150)]
        low, high = paired_difference_interval(
            sum(one < 0.05 for one in changes), sum(0.05 <= one < 0.15 for one in changes), 150
        )
        hits += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.98


def test_the_mean_interval_needs_two_values() -> None:
    assert mean_interval([1.0]) is None
    found = mean_interval([1.0, 3.0])
    assert found is not None and found.mean == 2 and found.low == pytest.approx(2 - 12.7062, abs=1e-3)
