"""Advice: which change is next, its test with the prediction in it, its flags, and the score of what was predicted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core_engine.variables import VARIABLES
from experiments import jobs
from experiments.advisor import advice
from experiments.advisor.advice import advise, base_of, comparison_for, start_test
from experiments.advisor.advice_flags import ENGINES, SPELLED, flags
from experiments.advisor.advice_table import print_advice
from experiments.advisor.prediction import CurvePrediction, Prediction
from experiments.advisor.prediction_estimate import CURVES, verdict_of
from experiments.advisor.record import outcomes, predicted_runs, with_prediction
from experiments.advisor.record_score import fixed_order, no_change, score
from experiments.advisor.record_table import print_score
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from experiments.store.identity import spec_hash
from ledger.errors import InputError
from tests.experiments.predicted import comparison_result, stored_comparison

SPEC = {"variable": "max_num_seqs", "values": [2, 8], "workload": "mixed", "num_requests": 6}
BASE = BenchSpec.from_dict({"workload": "mixed", "num_requests": 6, "settings": {"max_num_seqs": 2}})


@dataclass(frozen=True)
class Change:
    variable: str
    from_value: Any
    to_value: Any
    why: str = "because"
    refuted_by: str = "nothing gets better"
    effort: str = "config"


@dataclass(frozen=True)
class Cause:
    cause: str
    changes: list[Change] = field(default_factory=list)


def prediction(changes: Mapping[str, float], *, half: float = 0.1, spec: Mapping[str, Any] = SPEC) -> Prediction:
    """Says these changes in ln with a band of +-half; quality stays by construction; None for other curves."""
    curves = []
    for name in CURVES:
        if name == "quality":
            curves.append(CurvePrediction(name, 0.0, (0.0, 0.0), "no difference", "identity", "computed", "", True, 0.0,
                                          0.0, 0.0, 0.0))  # fmt: skip
        elif name in changes:
            pct = [100 * math.expm1(changes[name] + side * half) for side in (-1, 0, 1)]
            curves.append(CurvePrediction(name, pct[1], (pct[0], pct[2]), verdict_of(name, changes[name]), "simulator",
                                          "simulated", "", False, changes[name], changes[name], half, 1.0))  # fmt: skip
        else:
            curves.append(CurvePrediction(name, None, None, None, "none", None, "measure"))
    return Prediction(spec["variable"], *spec["values"], tuple(curves))


@pytest.fixture
def foretold(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, Any], dict[str, float]]:
    """Predictions by (variable, to), which take the place of every source."""
    known: dict[tuple[str, Any], dict[str, float]] = {}

    def predict(spec: CompareSpec, store: Any, *, tokenizer: Any = None) -> Prediction:
        return prediction(known[spec.variable, spec.values[1]], spec=spec.to_dict())

    monkeypatch.setattr(advice, "predict", predict)
    return known


# -- which change is next --------------------------------------------------------------------------------------------


NO_GAIN = {"ttft_s": 0.2, "itl_s": 0.2, "output_tokens_per_s": -0.2, "cost_per_request": 0.2}


def test_the_next_change_is_the_first_that_no_prediction_speaks_against(foretold: Any) -> None:
    foretold["kv_dtype", "int8"] = NO_GAIN
    foretold["max_num_seqs", 8] = {"ttft_s": -0.5, "output_tokens_per_s": 0.6}
    causes = [Cause("kv-memory-bound", [Change("kv_dtype", None, "int8")]),
              Cause("queue-bound", [Change("max_num_seqs", 2, 8), Change("max_num_seqs", 2, 4)])]  # fmt: skip
    found = advise(causes, BASE, None)
    assert found is not None and (found.cause, found.variable, found.to_value) == ("queue-bound", "max_num_seqs", 8)
    assert [one.variable for one in found.passed_over] == ["kv_dtype"]
    assert found.test is not None and found.test["predictions"]["curves"][0]["verdict"] == "better"
    json.dumps(found.to_json(), allow_nan=False)


def test_a_change_is_only_dropped_when_every_band_ends_before_a_gain(foretold: Any) -> None:
    causes = [Cause("queue-bound", [Change("max_num_seqs", 2, 8)]),
              Cause("kv-memory-bound", [Change("kv_dtype", None, "int8")])]  # fmt: skip
    foretold["kv_dtype", "int8"] = {"ttft_s": -0.5}
    for said in ({**NO_GAIN, "ttft_s": 0.02}, {**NO_GAIN, "output_tokens_per_s": -0.04}, {"itl_s": 0.2}):
        foretold["max_num_seqs", 8] = said  # +-0.1: the band reaches a gain, or a curve has none
        found = advise(causes, BASE, None)
        assert found is not None and found.variable == "max_num_seqs" and not found.passed_over
    foretold["max_num_seqs", 8] = {**NO_GAIN, "ttft_s": 0.07}  # up to 3 %, which no comparison calls better
    found = advise(causes, BASE, None)
    assert found is not None and found.variable == "kv_dtype"
    assert [one.variable for one in found.passed_over] == ["max_num_seqs"]


def test_one_earlier_pair_does_not_overrule_an_obvious_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.simulator.calibration.calibration_file", lambda: tmp_path / "none.json")
    store = Store(tmp_path / "runs.sqlite3")
    causes = [Cause("queue-bound", [Change("max_num_seqs", 2, 8)]), Cause("x", [Change("kv_dtype", None, "int8")])]
    spec = comparison_for(causes[0].changes[0], BASE)
    assert spec is not None
    ratios = {"ttft_s": 1.3, "itl_s": 1.3, "output_tokens_per_s": 0.7, "cost_per_request": 1.4}
    run_id = stored_comparison(store, spec.to_dict(), ratios)
    many = store.get_run(run_id).result
    assert many is not None
    one = {**many, "curves": [{**curve, "samples": {arm: values[:1] for arm, values in curve["samples"].items()}}
                              for curve in many["curves"]]}  # fmt: skip
    store.update_run(run_id, result=one)
    found = advise(causes, BASE, store)
    assert found is not None and found.variable == "max_num_seqs" and not found.passed_over
    assert found.prediction is not None and found.prediction.is_empty
    store.update_run(run_id, result=many)  # five pairs that agree are evidence
    found = advise(causes, BASE, store)
    assert found is not None and found.variable == "kv_dtype"
    assert [one.variable for one in found.passed_over] == ["max_num_seqs"]


def test_when_nothing_may_help_the_first_change_stands_with_what_is_predicted(foretold: Any) -> None:
    foretold["kv_dtype", "int8"] = NO_GAIN
    found = advise([Cause("kv-memory-bound", [Change("kv_dtype", None, "int8")])], BASE, None)
    assert found is not None and found.variable == "kv_dtype"
    assert found.prediction is not None and found.prediction.curve("itl_s").verdict == "worse"


def test_what_nothing_predicts_is_still_the_next_change_to_measure(foretold: Any) -> None:
    foretold["kernels", "auto"] = {}
    found = advise([Cause("launch-bound", [Change("kernels", "torch", "auto")])], BASE, None)
    assert found is not None and found.prediction is not None and found.prediction.is_empty and found.test is not None


def test_changes_that_can_not_be_are_named_with_their_reason(foretold: Any) -> None:
    foretold["max_num_seqs", 8] = {"ttft_s": -0.5}
    causes = [Cause("queue-bound", [Change("max_num_seqs", None, 2), Change("kv_memory_mib", None, None),
                                    Change("batching", "static", "magic"), Change("max_num_seqs", 2, 8)])]  # fmt: skip
    found = advise(causes, BASE, None)
    assert found is not None and found.to_value == 8
    reasons = {one.variable: one.reason for one in found.passed_over}
    assert "already" in reasons["max_num_seqs"] and "sweep" in reasons["kv_memory_mib"]
    assert "continuous" in reasons["batching"]


def test_a_server_elsewhere_gets_a_change_with_flags_and_no_prediction() -> None:
    found = advise([Cause("queue-bound", [Change("max_num_seqs", 64, 128)])], None, None)
    assert found is not None and found.prediction is None and found.test is None and found.no_test
    assert [flag.text for flag in found.flags if flag.engine == "vLLM"] == ["--max-num-seqs 128"]
    with pytest.raises(InputError):
        start_test(found, None)  # type: ignore[arg-type]


def test_what_is_no_setting_of_an_engine_has_no_test_and_a_setting_goes_before_it(foretold: Any) -> None:
    outside = Cause("client-bound", [Change("client_connections", None, None)])
    found = advise([outside], BASE, None)
    assert found is not None and found.test is None and found.no_test and not found.flags
    foretold["max_num_seqs", 8] = {"ttft_s": -0.5}
    found = advise([outside, Cause("queue-bound", [Change("max_num_seqs", 2, 8)])], BASE, None)
    assert found is not None and found.variable == "max_num_seqs"


def test_a_setting_of_a_server_that_was_measured_from_here_is_not_called_none(foretold: Any) -> None:
    served = BenchSpec.from_dict({"workload": "mixed", "endpoint": "http://127.0.0.1:9/v1"})
    found = advise([Cause("queue-bound", [Change("max_num_seqs", 2, 8)])], served, None)
    assert found is not None and found.no_test == advice.NOT_HERE and found.test is None


def test_no_cause_no_advice() -> None:
    assert advise([], BASE, None) is None and advise([Cause("healthy")], BASE, None) is None


def test_a_change_is_tested_on_the_runs_own_load_and_settings() -> None:
    base = BenchSpec.from_dict({"workload": "chat", "concurrency": 4, "settings": {"threads": 1, "max_num_seqs": 4}})
    made = comparison_for(Change("max_num_seqs", None, 8), base)
    assert made is not None and made.values == (4, 8) and made.settings == {"threads": 1}
    assert made.workload == "chat" and made.concurrency == 4


def test_the_base_of_a_stored_run_is_the_spec_of_its_arm(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    compared = store.get_run(store.create_run("compare", CompareSpec.from_dict(SPEC).to_dict()))
    found = base_of(compared, 1)
    assert found is not None and found.settings["max_num_seqs"] == 8 and found.num_requests == 6
    benched = store.get_run(store.create_run("bench", BASE.to_dict()))
    assert base_of(benched) == BASE
    assert base_of(store.get_run(store.create_run("plan", {}))) is None


# -- flags -----------------------------------------------------------------------------------------------------------


def test_every_variable_has_a_line_for_each_of_the_four_engines() -> None:
    for name, entry in VARIABLES.items():
        for value in entry.choices or (entry.default,):
            found = flags(name, value)
            assert [flag.engine for flag in found] == list(ENGINES), name
            assert all(flag.text or flag.note for flag in found), name
            assert all("{value}" not in f"{flag.text}{flag.note}" for flag in found), name


def test_what_is_spelled_out_names_values_that_exist() -> None:
    for name, value in SPELLED:
        entry = VARIABLES[name]
        assert value == "*" or value in entry.choices, (name, value)


@pytest.mark.parametrize(
    ("variable", "value", "engine", "text"),
    [
        ("max_num_batched_tokens", 512, "vLLM", "--max-num-batched-tokens 512"),
        ("kv_memory_mib", 64, "vLLM", f"--kv-cache-memory-bytes {64 * 2**20}"),
        ("prefix_cache", "off", "vLLM", "--no-enable-prefix-caching"),
        ("prefix_cache", "off", "SGLang", "--disable-radix-cache"),
        ("kv_dtype", "fp8", "TensorRT-LLM", "kv_cache_config: {dtype: fp8}"),
        ("num_draft_tokens", 6, "TensorRT-LLM", "speculative_config: {max_draft_len: 6}"),
        ("threads", 4, "llama.cpp", "--threads 4"),
        ("fused_ops", "on", "vLLM", None),
    ],
)
def test_a_value_is_spelled_as_the_engine_spells_it(variable: str, value: Any, engine: str, text: str | None) -> None:
    assert next(flag.text for flag in flags(variable, value) if flag.engine == engine) == text


# -- kept before, scored after ---------------------------------------------------------------------------------------


def test_a_prediction_is_part_of_the_spec_and_of_no_hash(tmp_path: Path) -> None:
    spec = CompareSpec.from_dict(SPEC).to_dict()
    said = with_prediction(spec, prediction({"ttft_s": -0.5}))
    assert spec_hash(said) == spec_hash(spec) and CompareSpec.from_dict(said).predictions == said["predictions"]
    assert CompareSpec.from_dict(said).configs() == CompareSpec.from_dict(spec).configs()


def test_a_test_is_started_with_its_prediction(foretold: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foretold["max_num_seqs", 8] = {"ttft_s": -0.5}
    started: list[Mapping[str, Any]] = []
    monkeypatch.setattr(jobs, "_start_worker", lambda run_id, store: started.append(store.get_run(run_id).spec))
    found = advise([Cause("queue-bound", [Change("max_num_seqs", 2, 8)])], BASE, None)
    assert found is not None
    store = Store(tmp_path / "runs.sqlite3")
    run_id = start_test(found, store)
    assert started[0]["predictions"]["curves"][0]["median_pct"] < 0 and store.get_run(run_id).kind == "compare"


def predicted_run(store: Store, said: Prediction, ratios: Mapping[str, float], **fields: Any) -> str:
    spec = with_prediction(CompareSpec.from_dict({**SPEC, **fields}).to_dict(), said)
    return stored_comparison(store, spec, ratios)


def test_the_score_counts_directions_bands_and_widths(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    predicted_run(store, prediction({"ttft_s": -0.7, "itl_s": 0.0, "output_tokens_per_s": 0.0}),
                  {"ttft_s": 0.5, "itl_s": 1.0, "output_tokens_per_s": 1.5})  # fmt: skip
    found = score(store)
    assert found["comparisons"] == 1 and found["curves"] == 5 and found["unpredicted"] == 1  # the cost
    assert (found["timed"]["direction"]["right"], found["timed"]["direction"]["of"]) == (2, 3)
    assert found["overall"]["direction"]["of"] == 4  # and quality, which stays by construction
    assert found["overall"]["bands"]["of"] == 3 and found["overall"]["bands"]["covered"] == 2
    assert 5 < found["overall"]["half_width_points"] < 11
    assert found["baselines"]["no change"]["direction"]["right"] == 2
    assert found["by_source"].keys() == {"identity", "simulator"}
    row = next(one for one in outcomes(predicted_runs(store)[0]) if one.curve == "output_tokens_per_s")
    assert row.measured == "better" and row.is_right is False and row.covered is False


def test_an_undecided_curve_counts_in_no_direction_but_in_its_band(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = predicted_run(store, prediction({"ttft_s": -0.7}), {"ttft_s": 0.5})
    run = store.get_run(run_id)
    assert run.result is not None
    result = {**run.result, "curves": [{**curve, "verdict": "inconclusive"} for curve in run.result["curves"]]}
    store.update_run(run_id, result=result)
    found = score(store)
    assert found["timed"]["direction"]["of"] == 0 and found["timed"]["bands"]["covered"] == 1
    assert found["undecided"] == 2


def test_only_finished_comparisons_with_a_prediction_are_scored(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = CompareSpec.from_dict(SPEC).to_dict()
    stored_comparison(store, spec, {})
    waiting = store.create_run("compare", with_prediction(spec, prediction({})))
    assert predicted_runs(store) == [] and score(store)["comparisons"] == 0
    store.update_run(waiting, state="done", result={**comparison_result(spec, {}), "cancelled": True})
    assert predicted_runs(store) == []


@pytest.mark.parametrize(
    ("variable", "values", "says"),
    [
        ("batching", ("static", "continuous"), "better"),
        ("kv_layout", ("paged", "contiguous"), "worse"),
        ("kv_dtype", ("auto", "int8"), "better"),
        ("weights", ("none", "w8a8"), "better"),
        ("weights", ("none", "w4a16-rtn"), "no difference"),
        ("speculation", ("off", "ngram"), "better"),
        ("disaggregation", ("off", "on"), "better"),
        ("block_size", (16, 32), "no difference"),
        ("batching", ("static", "dynamic"), "no difference"),
    ],
)
def test_the_fixed_order_says_what_the_guides_say(tmp_path: Path, variable: str, values: Any, says: str) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    fields = {"variable": variable, "values": list(values), "settings": {}}
    predicted_run(store, prediction({"ttft_s": 0.0}, spec=fields), {}, **fields)
    rows = {one.curve: one for one in outcomes(predicted_runs(store)[0])}
    assert fixed_order(rows["ttft_s"]) == says and fixed_order(rows["quality"]) == "no difference"
    assert no_change(rows["ttft_s"]) == "no difference"


def test_the_score_is_printed_with_and_without_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    print_score(score(store))
    assert "no comparison has been predicted" in capsys.readouterr().out
    predicted_run(store, prediction({"ttft_s": -0.7}), {"ttft_s": 0.5})
    print_score(score(store))
    shown = capsys.readouterr().out
    assert "1 predicted comparisons" in shown and "no change" in shown and "goals" in shown


def test_an_advice_is_printed_with_its_prediction_flags_and_what_comes_later(
    foretold: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    foretold["kv_dtype", "int8"] = NO_GAIN
    foretold["max_num_seqs", 8] = {"ttft_s": -0.5}
    causes = [Cause("kv-memory-bound", [Change("kv_dtype", None, "int8")]),
              Cause("queue-bound", [Change("max_num_seqs", 2, 8)])]  # fmt: skip
    found = advise(causes, BASE, None)
    assert found is not None
    print_advice(found)
    shown = capsys.readouterr().out
    assert "max_num_seqs 2 -> 8" in shown and "-39.3 %" in shown and "measure" in shown
    assert "vLLM: --max-num-seqs 8" in shown and "later: kv_dtype -> int8" in shown
    print_advice(advise([Cause("client-bound", [Change("client_connections", None, None)])], None, None))  # type: ignore[arg-type]
    assert "nothing runs here" in capsys.readouterr().out
