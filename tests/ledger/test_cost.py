"""Money: units, missing values and refusals."""

from __future__ import annotations

import pytest

from ledger.cost import (
    cards_needed,
    cost_per_million_output_tokens,
    cost_per_request,
    monthly_cost,
    request_cost,
    requests_per_device_hour,
)
from ledger.errors import InputError


def test_an_hour_at_one_unit_a_device_hour():
    assert cost_per_request(3600, 100) == pytest.approx(0.01)
    assert cost_per_million_output_tokens(3600, 2_000_000, 3.0) == pytest.approx(1.5)
    assert requests_per_device_hour(1800, 100) == pytest.approx(200)


def test_every_device_is_paid():
    assert cost_per_request(3600, 100, 2.0, num_devices=4) == pytest.approx(0.08)
    assert requests_per_device_hour(3600, 100, num_devices=4) == pytest.approx(25)


def test_no_value_is_none_not_zero():
    assert cost_per_request(10, 0) is None
    assert cost_per_million_output_tokens(10, 0) is None
    assert requests_per_device_hour(0, 5) is None


@pytest.mark.parametrize("arguments", [(-1, 1), (float("nan"), 1), (1, -1), (1, 1, float("inf")), (1, 1, 1.0, 0)])
def test_impossible_numbers_are_refused(arguments):
    with pytest.raises(InputError):
        cost_per_request(*arguments)


def test_a_request_costs_its_tokens_and_the_device_time_it_holds():
    found = request_cost(
        1_000, 500, price_per_million_input=2.0, price_per_million_output=6.0, device_hours=0.001,
        price_per_device_hour=3.0,
    )  # fmt: skip
    assert found["terms"] == pytest.approx({"input": 0.002, "output": 0.003, "device": 0.003})
    assert found["total"] == pytest.approx(0.008)
    assert "1,000 input tokens x 2" in found["how"] and found["how"].endswith("= 0.008")


def test_ten_requests_a_second_of_500_tokens_are_12_96_billion_a_month():
    month = monthly_cost(10, 300, 500, tokens_per_s_per_device=1000, utilisation=0.5, price_per_device_hour=2.0)
    assert month["output_tokens_per_s"] == 5_000
    assert month["output_tokens"] == 12_960_000_000
    assert month["requests"] == 25_920_000
    assert (month["cards"], month["device_hours"], month["cost"]) == (10, 7_200, 14_400)
    assert month["busy_device_hours"] == pytest.approx(3_600)
    assert month["utilisation"] == pytest.approx(0.5)
    assert month["cost_per_million_output_tokens"] == pytest.approx(14_400 / 12_960)


@pytest.mark.parametrize(
    ("needed", "each", "utilisation", "replica", "cards"),
    [
        (5_000, 1_000, 1.0, 1, 5),
        (5_000, 1_000, 0.5, 1, 10),
        (7_000, 1_000, 0.7, 1, 10),  # 10 and not 11, whatever floating point makes of 0.7
        (5_001, 1_000, 1.0, 1, 6),
        (1, 1_000, 0.7, 1, 1),
        (5_000, 1_000, 1.0, 4, 8),  # whole replicas of four
    ],
)
def test_cards_are_whole_replicas_below_the_utilisation_ceiling(needed, each, utilisation, replica, cards):
    assert cards_needed(needed, each, utilisation, replica) == cards


@pytest.mark.parametrize(
    "arguments", [(0, 1), (1, 0), (-1, 1), (1, float("nan")), (1, 1, 0), (1, 1, 1.1), (1, 1, 0.5, 0)]
)
def test_impossible_loads_are_refused(arguments):
    with pytest.raises(InputError):
        cards_needed(*arguments)
