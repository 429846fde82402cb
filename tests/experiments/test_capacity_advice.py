"""Water lines, instances, a month's cost and the largest savings from a stored sweep; the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.capacity_advice import MONTH_H, advice_lines, advise_capacity
from experiments.capacity_ledger import ledger_savings
from experiments.cli import run
from experiments.store import Run, Store
from ledger.errors import InputError
from ledger.hardware import Accelerator


def sweep(**limits: Any) -> dict[str, Any]:
    found = {
        "basis": "objectives", "highest_rps": 10.0, "instance_limit_rps": 8.0, "scale_out_rps": 6.0, "demand_rps": None,
        "reason": "the objectives are met at 10 and missed at 12",
    }  # fmt: skip
    return {
        "limits": {**found, **limits}, "price_per_device_hour": 2.0, "settings": {"tensor_parallel": 2},
        "workload": {"name": "assistant"}, "run_id": "s1", "over": {"name": "rate"},
    }  # fmt: skip


def lever(name: str, saved: float, verdict: str = "better", quality: str | None = "no difference") -> dict[str, Any]:
    return {"name": name, "variable": name, "from": "off", "to": "on", "verdict": verdict, "saved_pct": saved,
            "saved_ci95": [saved - 2, saved + 2], "quality": quality and {"verdict": quality},
            "provenance": "measured"}  # fmt: skip


def levers_run(run_id: str, *rows: dict[str, Any], workload: str = "assistant", provenance: str = "measured") -> Run:
    result = {"levers": [{**row, "provenance": provenance} for row in rows], "workload": {"name": workload},
              "cancelled": False, "provenance": provenance}  # fmt: skip
    moment = "2026-01-01T00:00:00"
    return Run(run_id, "levers", "done", moment, moment, {}, result)


def test_the_lines_are_those_of_the_limit_and_of_as_many_instances_as_the_demand_takes() -> None:
    found = advise_capacity(sweep(), demand_rps=13.0)
    assert {k: found["instance"][k] for k in ("scale_out_rps", "alarm_rps", "refuse_rps")} == {
        "scale_out_rps": 6.0, "alarm_rps": 8.0, "refuse_rps": 10.0,
    }  # fmt: skip
    fleet = found["fleet"]
    assert (fleet["instances"], fleet["devices"]) == (3, 6)  # 13 / 6, rounded up; two ranks each
    assert (fleet["scale_out_rps"], fleet["alarm_rps"], fleet["refuse_rps"]) == (18.0, 24.0, 30.0)
    assert fleet["one_may_fail"] and fleet["load_share"] == pytest.approx(13 / 30)
    assert not advise_capacity(sweep(), demand_rps=6.0)["fleet"]["one_may_fail"]
    month = found["month"]
    assert month["cost"] == pytest.approx(6 * 720 * 2.0) and pytest.approx(720) == MONTH_H
    assert month["cost_per_million_requests"] == pytest.approx(1e6 * month["cost"] / (13 * 720 * 3600))


def test_the_demand_and_the_price_of_the_sweep_count_where_none_is_given() -> None:
    assert advise_capacity(sweep(demand_rps=5.0))["fleet"]["instances"] == 1
    assert advise_capacity(sweep())["fleet"] is None and advise_capacity(sweep())["month"] is None
    twice = advise_capacity(sweep(demand_rps=5.0), price_per_device_hour=4.0)["month"]["cost"]
    assert twice == 2 * advise_capacity(sweep(demand_rps=5.0))["month"]["cost"]


def test_without_a_limit_there_are_no_lines_but_the_reason() -> None:
    found = advise_capacity(sweep(highest_rps=None, instance_limit_rps=None, scale_out_rps=None), demand_rps=5.0)
    assert found["fleet"] is None and found["month"] is None and found["instance"]["refuse_rps"] is None
    assert advice_lines(found) == ["water lines: none; the objectives are met at 10 and missed at 12"]


def test_the_three_largest_decided_savings_without_a_loss_of_quality_count() -> None:
    newest = levers_run(
        "a", lever("weights", 30), lever("kv", 1, "no difference"), lever("compression", 60, quality="worse"),
        lever("answer_cache", 40), lever("routing", 20), lever("batching", 50),
    )  # fmt: skip
    older = levers_run("b", lever("weights", 90))
    savings = advise_capacity(sweep(), [newest, older], demand_rps=13.0)["savings"]
    assert [(one["lever"], one["run_id"]) for one in savings] == [
        ("batching", "a"), ("answer_cache", "a"), ("weights", "a"),
    ]  # fmt: skip
    assert savings[0]["saved_per_month"] == pytest.approx(0.5 * 6 * 720 * 2.0)


def test_what_was_measured_on_the_same_workload_comes_before_all_else_and_each_keeps_its_label() -> None:
    runs = [
        levers_run("other", lever("weights", 80), lever("kv", 70), workload="chat"),
        levers_run("simulated", lever("weights", 60), lever("batching", 55), provenance="simulated"),
        levers_run("measured", lever("weights", 10)),
    ]
    savings = advise_capacity(sweep(), runs)["savings"]
    assert [(one["lever"], one["run_id"], one["provenance"]) for one in savings] == [
        ("batching", "simulated", "simulated"), ("weights", "measured", "measured"), ("kv", "other", "measured"),
    ]  # fmt: skip
    assert [one["same_workload"] for one in savings] == [True, True, False]
    assert "on another workload, chat" in advice_lines(advise_capacity(sweep(), runs))[-2]


def test_a_lever_that_the_sweep_had_pulled_is_not_advised_again() -> None:
    swept = {**sweep(), "settings": {"weights": "on", "kv": "off"}}
    savings = advise_capacity(swept, [levers_run("a", lever("weights", 80), lever("kv", 20))])["savings"]
    assert [one["lever"] for one in savings] == ["kv"]


def test_the_newest_decision_about_a_lever_stands_and_an_undecided_one_replaces_nothing() -> None:
    older = levers_run("old", lever("weights", 30), lever("kv", 20), lever("routing", 10))
    newer = levers_run(
        "new", lever("weights", 1, "no difference"), lever("kv", 15, "inconclusive"),
        lever("routing", 9, quality="worse"),
    )  # fmt: skip
    savings = advise_capacity(sweep(), [newer, older])["savings"]
    assert [(one["lever"], one["run_id"]) for one in savings] == [("kv", "old")]


def test_what_is_simulated_for_another_card_says_nothing_of_these_instances() -> None:
    card = levers_run("card", lever("weights", 60), provenance="simulated")
    here = levers_run("here", lever("kv", 20), provenance="simulated")
    assert card.result is not None and here.result is not None
    card.result["gpu"], here.result["gpu"] = "h100-sxm", "this"
    assert [one["run_id"] for one in advise_capacity(sweep(), [card, here])["savings"]] == ["here"]


def test_a_demand_of_whole_instances_takes_no_further_one() -> None:
    fleet = advise_capacity(sweep(scale_out_rps=0.1, instance_limit_rps=0.2, highest_rps=0.3), demand_rps=1.1)["fleet"]
    assert fleet["instances"] == 11


def test_savings_are_not_offered_as_a_sum_and_one_instance_has_no_others() -> None:
    runs = [levers_run("a", lever("weights", 30), lever("kv", 20))]
    lines = advice_lines(advise_capacity(sweep(), runs, demand_rps=5.0))
    assert "do not add up" in lines[-1] and "when it fails, nothing is served" in lines[1]


CPU = Accelerator(
    name="this", label="this", vendor="", memory_bytes=16 * 2**30, memory_source="system",
    bandwidth_bytes_per_s=20e9, flops_per_s={"fp32": 2e11}, link_bytes_per_s=None, power_w=None, sources=(),
    provenance="measured",
)  # fmt: skip


def swept_here(**settings: Any) -> dict[str, Any]:
    lengths = {"prompt_tokens": {"mean": 60.0}, "output_tokens": {"mean": 100.0}}
    return {
        **sweep(),
        "settings": {"model": "embedded", "weights": "none", "kv_dtype": "auto", "max_num_seqs": 8, **settings},
        "workload": {"name": "mixed", "lengths": lengths}, "points": [{"output_tokens_per_s": 90.0}],
        "environment": {"dtype": "fp32"},
    }  # fmt: skip


def test_without_a_measurement_the_ledger_estimates_fewer_bits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.capacity_ledger.this_machine", lambda device: CPU)
    savings = advise_capacity(swept_here(), demand_rps=13.0, otherwise=ledger_savings)["savings"]
    assert "weights" in [one["lever"] for one in savings] and {one["provenance"] for one in savings} == {"estimated"}
    assert all(0 < one["saved_pct"] < 100 and one["saved_per_month"] > 0 for one in savings)
    assert ledger_savings(swept_here(model="embedded-wide")) == [], "its sizes are not in the ledger"
    pulled = advise_capacity(swept_here(weights="w8a16"), otherwise=ledger_savings)["savings"]
    assert "weights" not in [one["lever"] for one in pulled]
    measured = [levers_run("a", lever("routing", 20))]
    assert [one["lever"] for one in advise_capacity(swept_here(), measured, otherwise=ledger_savings)["savings"]] == [
        "routing",
    ]  # fmt: skip


def test_without_a_calibration_the_ledger_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.capacity_ledger.this_machine", lambda device: None)
    assert ledger_savings(swept_here()) == []


def test_without_measured_levers_the_next_step_is_named() -> None:
    found = advise_capacity(sweep(), demand_rps=3.0)
    assert found["savings"] == [] and "trilemma levers --workload assistant" in advice_lines(found)[-1]


@pytest.mark.parametrize("field", ["demand_rps", "price_per_device_hour"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_a_demand_or_price_that_is_none_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field.removesuffix("_rps")):
        advise_capacity(sweep(), **{field: value})


def test_a_sweep_of_a_variable_has_no_limit_to_advise_by() -> None:
    with pytest.raises(InputError, match="no limit"):
        advise_capacity({**sweep(), "limits": None})


def test_the_command_reads_a_stored_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    store = Store()
    swept = store.create_run("sweep", {})
    store.update_run(swept, state="done", result={**sweep(), "points": []})
    assert run(["capacity", swept, "--demand", "13", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fleet"]["instances"] == 3
    assert run(["capacity", swept, "--demand", "13"]) == 0
    assert "refuse above 10" in capsys.readouterr().out
    assert run(["capacity", swept, "--demand", "many"]) == 2
    assert run(["capacity", store.create_run("bench", {})]) == 2
