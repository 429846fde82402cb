"""A point's figures are all of one span of time."""

from __future__ import annotations

import pytest

from experiments.sweep.figures import rates

WHOLE = {
    "output_tokens_per_s": 40.0, "requests_per_s": 4.0, "goodput_rps": 3.0,
    "cost_per_million_output_tokens": 6.0, "cost_per_request": 0.02,
}  # fmt: skip


def test_goodput_and_cost_are_of_the_same_span_as_throughput() -> None:
    found = rates(WHOLE, (50.0, 6.0))
    assert (found["output_tokens_per_s"], found["requests_per_s"]) == (50.0, 6.0)
    assert found["goodput_rps"] == 4.5  # three of four requests keep the objectives
    assert found["cost_per_million_output_tokens"] == pytest.approx(6.0 * 40 / 50)
    assert found["cost_per_request"] == pytest.approx(0.02 * 4 / 6)


def test_without_a_steady_span_the_whole_run_counts() -> None:
    assert rates(WHOLE, None) == WHOLE
    assert rates(WHOLE, (0.0, 0.0)) == WHOLE  # a span in which nothing ended
    assert rates(WHOLE | {"goodput_rps": None}, (50.0, 6.0))["goodput_rps"] is None
