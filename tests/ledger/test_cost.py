"""Money: units, missing values and refusals."""

from __future__ import annotations

import pytest

from ledger.cost import cost_per_million_output_tokens, cost_per_request, requests_per_device_hour
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
