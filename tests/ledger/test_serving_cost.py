"""Throughput bounds and what levers save."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.capacity import Deployment, max_concurrency
from ledger.cost import LEVERS, Scenario, cost_of, cost_report, lever_value, levers
from ledger.errors import InputError
from ledger.hardware import accelerator
from ledger.model_spec import ModelSpec
from ledger.operators import operators
from ledger.roofline import step_time_s
from ledger.serving import Traffic, serving_bound
from tests.ledger.test_operators import LLAMA, LLAMA_8B

A100 = accelerator("a100")
TRAFFIC = Traffic(10, 1000, 500)
DEPLOYMENT = Deployment(LLAMA_8B)
SCENARIO = Scenario(TRAFFIC, DEPLOYMENT, A100)


def test_the_bound_is_one_over_prefill_and_a_share_of_every_decode_step() -> None:
    found = serving_bound(DEPLOYMENT, A100, TRAFFIC, concurrency=16)
    prefill = step_time_s(operators(LLAMA_8B, "prefill", 1, 1000), A100)
    decode = step_time_s(operators(LLAMA_8B, "decode", 16, 1250), A100)
    assert found.requests_per_s == pytest.approx(1 / (prefill + 500 * decode / 16))
    # Little's law: requests at once = rate x time in the system
    assert found.tpot_s is not None and found.requests_per_s is not None
    assert found.requests_per_s * 500 * found.tpot_s == pytest.approx(16)
    assert (found.limited_by, found.provenance) == ("concurrency", "computed")


def test_memory_limits_the_bound_as_it_limits_the_deployment() -> None:
    found = serving_bound(DEPLOYMENT, A100, TRAFFIC)
    held = max_concurrency(replace(DEPLOYMENT, seq_len=1500, capacity_bytes=A100.memory_bytes, card=A100.name))
    assert (found.concurrency, found.memory_concurrency, found.limited_by) == (held, held, "memory")


def test_an_objective_lowers_the_concurrency_to_the_largest_that_meets_it() -> None:
    found = serving_bound(DEPLOYMENT, A100, TRAFFIC, tpot_slo_s=0.025)
    more = serving_bound(DEPLOYMENT, A100, TRAFFIC, concurrency=found.concurrency + 1)
    assert found.limited_by == "tpot objective"
    assert found.tpot_s is not None and more.tpot_s is not None
    assert found.tpot_s <= 0.025 < more.tpot_s


def test_what_does_not_fit_or_meets_no_objective_has_no_rate_and_a_reason() -> None:
    large = ModelSpec.from_config({**LLAMA, "num_hidden_layers": 400})
    for found in (
        serving_bound(Deployment(large), A100, TRAFFIC),
        serving_bound(DEPLOYMENT, A100, TRAFFIC, tpot_slo_s=1e-6),
    ):
        assert (found.concurrency, found.requests_per_s, found.tpot_s) == (0, None, None)
        assert "not" in found.limited_by
    report = cost_report(replace(SCENARIO, deployment=Deployment(large)), {"weights": "w8a8"})
    assert report["cards"] is None and report["month"] is None and report["request"] is None
    assert "not one request fits" in report["how"]
    assert report["levers"]["each"][0]["saved_pct"] is None
    json.dumps(report, allow_nan=False)


def test_cached_input_is_not_computed_again() -> None:
    none, most = (serving_bound(DEPLOYMENT, A100, replace(TRAFFIC, cached_share=share)) for share in (0.0, 0.9))
    assert most.prefill_s < none.prefill_s and most.concurrency == none.concurrency
    assert replace(TRAFFIC, cached_share=0.9).new_input_tokens == 100
    assert Traffic(1, 1, 1, 0.9).new_input_tokens == 1


@pytest.mark.parametrize(
    ("lever", "value"),
    [
        ("prefix_cache", 0.5), ("shorter_prompts", 0.3), ("shorter_answers", 0.3), ("answer_cache", 0.3),
        ("routing", 0.4), ("weights", "w8a8"), ("kv_dtype", "int8"),
    ],
)  # fmt: skip
def test_every_lever_saves_on_a_card_that_is_short_of_memory_and_bandwidth(lever: str, value: Any) -> None:
    found = levers(replace(SCENARIO, device=accelerator("l4")), {lever: value})
    assert 0 < found["each"][0]["saved_pct"] < 100
    assert found["each"][0]["saved_pct"] == found["together"]["saved_pct"]


def test_a_smaller_batch_costs_more() -> None:
    found = levers(replace(SCENARIO, concurrency=16), {"concurrency": 64})["each"][0]
    worse = levers(SCENARIO, {"concurrency": 16})["each"][0]
    assert found["saved_pct"] > 0 > worse["saved_pct"]


def test_levers_together_are_neither_the_sum_nor_the_product_of_each() -> None:
    found = levers(SCENARIO, {"weights": "w8a8", "kv_dtype": "int8", "prefix_cache": 0.5, "answer_cache": 0.3})
    singles = [row["saved_pct"] for row in found["each"]]
    assert found["sum_of_each_pct"] == pytest.approx(sum(singles))
    assert found["together"]["saved_pct"] < min(100, found["sum_of_each_pct"])
    assert found["together"]["saved_pct"] > max(singles)
    assert found["together"]["saved_pct"] != pytest.approx(found["product_of_each_pct"], abs=0.5)


def test_routing_and_an_answer_cache_take_requests_away() -> None:
    base, answered, routed = (
        cost_of(replace(SCENARIO, **changes))["devices_exact"]
        for changes in ({}, {"answered_share": 0.25}, {"routed_share": 0.5, "small_model_cost": 0.2})
    )
    assert answered == pytest.approx(0.75 * base)
    assert routed == pytest.approx(0.6 * base)
    how = cost_of(replace(SCENARIO, answered_share=0.25))["how"]
    assert how.startswith("10 requests/s x (1 - 0.25 answered from a cache) = 7.5 requests/s of work")


def test_a_measured_throughput_replaces_the_bound_and_levers_keep_its_share() -> None:
    measured = replace(SCENARIO, measured_tokens_per_s=1000.0)
    report = cost_report(measured, {"weights": "w8a8"})
    assert report["throughput"]["provenance"] == "measured"
    assert report["cards"] == 8  # 5,000 / (1,000 x 0.7) = 7.1
    row, bound = report["levers"]["each"][0], levers(SCENARIO, {"weights": "w8a8"})["each"][0]
    assert row["provenance"] == "estimated" and row["saved_pct"] == pytest.approx(bound["saved_pct"])


def test_a_measured_rate_above_the_roof_is_doubted() -> None:
    assert cost_report(replace(SCENARIO, measured_tokens_per_s=1000.0))["warnings"] == []
    assert "times the bound" in cost_report(replace(SCENARIO, measured_tokens_per_s=1e6))["warnings"][0]


def test_a_measured_rate_without_a_bound_says_nothing_about_another_step() -> None:
    large = Deployment(ModelSpec.from_config({**LLAMA, "num_hidden_layers": 400}))
    found = levers(
        replace(SCENARIO, deployment=large, measured_tokens_per_s=100.0), {"kv_dtype": "int8", "answer_cache": 0.5}
    )
    assert [row["saved_pct"] for row in found["each"]] == [None, pytest.approx(50)]
    assert found["together"]["saved_pct"] is None and found["base"]["cards"] is not None


def test_without_a_model_only_levers_that_need_none_are_there() -> None:
    plain = Scenario(TRAFFIC, measured_tokens_per_s=1000.0)
    found = levers(plain, {"answer_cache": 0.5})
    assert found["each"][0]["saved_pct"] == pytest.approx(50)
    assert (found["base"]["provenance"], found["each"][0]["provenance"]) == ("measured", "estimated")
    for name, lever in LEVERS.items():
        if lever.changes_step:
            with pytest.raises(InputError, match=name):
                levers(plain, {name: {"weights": "w8a8", "kv_dtype": "int8", "concurrency": 4}.get(name, 0.5)})
    with pytest.raises(InputError, match="throughput"):
        Scenario(TRAFFIC)


@pytest.mark.parametrize(
    ("lever", "value"),
    [
        ("luck", 0.5), ("routing", 1), ("routing", -0.1), ("routing", "half"), ("weights", "int3"), ("kv_dtype", "x"),
        ("concurrency", 1.5), ("concurrency", 0), ("prefix_cache", "nan"),
    ],
)  # fmt: skip
def test_wrong_levers_are_refused(lever: str, value: Any) -> None:
    with pytest.raises(InputError):
        lever_value(lever, value)


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (float("nan"), 1, 1), (1, 1, 1, 1.0)])
def test_impossible_traffic_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        Traffic(*wrong)


def test_a_replica_of_several_devices_is_bought_whole() -> None:
    report = cost_report(replace(SCENARIO, deployment=replace(DEPLOYMENT, tp=4)))
    assert report["cards"] % 4 == 0 and report["devices_per_replica"] == 4
    with pytest.raises(InputError, match="pp"):
        cost_of(replace(SCENARIO, deployment=replace(DEPLOYMENT, pp=2)))


def test_prices_are_labelled_and_every_part_of_a_request_is_there() -> None:
    report = cost_report(SCENARIO, price_per_million_input=1.0, price_per_million_output=2.0, price_is_assumed=False)
    assert report["price_label"] == "given"
    assert report["request"]["terms"]["input"] == pytest.approx(0.001)
    assert report["request"]["terms"]["device"] == pytest.approx(report["month"]["cost_per_request"])
    assert cost_report(SCENARIO)["price_label"] == "assumed"
