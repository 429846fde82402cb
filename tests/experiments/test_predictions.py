"""The advisor's predictions: their sources in order, what moves them, and bands that outcomes make."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from experiments.advisor import prediction_simulated
from experiments.advisor.prediction import CurvePrediction, Prediction, predict
from experiments.advisor.prediction_bands import ASSUMED, WIDEST, assumed, band_factor
from experiments.advisor.prediction_estimate import CURVES, TIMED, Estimate, verdict_of
from experiments.advisor.prediction_history import Past, corrected, direction, repeated, same_change, similar_load
from experiments.advisor.prediction_quality import quality
from experiments.simulator import calibration
from experiments.spec import CompareSpec
from experiments.store import Store
from experiments.store.identity import code_hash, identity
from ledger.errors import InputError
from tests.experiments.predicted import calibrated_here, stored_comparison

LOAD = {"workload": "mixed", "num_requests": 6, "max_tokens_cap": 12}


def spec_of(variable: str = "max_num_seqs", values: Any = (2, 8), **fields: Any) -> CompareSpec:
    return CompareSpec.from_dict({**LOAD, "variable": variable, "values": list(values), **fields})


def past_of(
    change: float, *, said: float | None = None, scale: float = 0.1, curve: str = "ttft_s", **fields: Any
) -> Past:
    """A comparison that found `change` (ln), of which the simulator had said `said`."""
    prediction = None
    if said is not None:
        prediction = {"curves": [{"name": curve, "source": "simulator", "exact": False, "centre_ln": said,
                                  "uncorrected_ln": said, "scale_ln": scale}]}  # fmt: skip
    spec = spec_of(**{"variable": "max_num_seqs", "values": (2, 8), **fields}).to_dict()
    return Past("0" * 8, spec, {curve: (change, 0.01)}, prediction)


# -- earlier comparisons -------------------------------------------------------------------------------------------


def test_the_same_two_values_count_in_either_order_and_other_settings_do_not() -> None:
    spec = spec_of()
    assert same_change(spec, spec_of().to_dict()) == 1
    assert same_change(spec, spec_of(values=(8, 2)).to_dict()) == -1
    assert same_change(spec, spec_of(values=(2, 4)).to_dict()) == 0
    assert same_change(spec, spec_of(settings={"threads": 1}).to_dict()) == 0
    assert same_change(spec, spec_of(settings={"block_size": 16}).to_dict()) == 1  # what is usual anyway


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"num_requests": 10}, True),
        ({"num_requests": 20}, False),
        ({"workload": "chat"}, False),
        ({"rate_rps": 3.0}, False),
        ({"concurrency": 4}, False),
        ({"max_tokens_cap": 64}, False),
        ({"seed": 5}, True),
    ],
)
def test_a_load_is_similar_when_workload_and_amounts_are_near(changes: dict[str, Any], alike: bool) -> None:
    assert similar_load(spec_of(), spec_of(**changes).to_dict()) is alike


def test_an_earlier_comparison_is_the_prediction_and_reversed_it_is_the_inverse() -> None:
    past = [past_of(math.log(0.5)), past_of(math.log(0.5))]
    forward = repeated(spec_of(), past, TIMED)["ttft_s"]
    back = repeated(spec_of(values=(8, 2)), past, TIMED)["ttft_s"]
    assert forward.centre == pytest.approx(math.log(0.5)) and back.centre == pytest.approx(math.log(2))
    assert forward.provenance == "measured" and set(repeated(spec_of(), past, TIMED)) == {"ttft_s"}


def test_earlier_comparisons_that_disagree_widen_the_scale() -> None:
    agree = repeated(spec_of(), [past_of(0.3), past_of(0.3), past_of(0.3)], TIMED)["ttft_s"]
    differ = repeated(spec_of(), [past_of(0.0), past_of(0.3), past_of(0.6)], TIMED)["ttft_s"]
    assert differ.centre == pytest.approx(agree.centre) and differ.scale > 2 * agree.scale


def test_comparisons_of_this_version_are_preferred_and_those_of_others_are_said_to_be() -> None:
    mine, other = (replace(past_of(change), code=code) for change, code in ((0.3, code_hash()), (0.9, "older")))
    both = repeated(spec_of(), [other, mine], TIMED)["ttft_s"]
    assert both.centre == pytest.approx(0.3) and "another version" not in both.basis
    alone = repeated(spec_of(), [other], TIMED)["ttft_s"]
    assert alone.centre == pytest.approx(0.9) and "of another version of the code" in alone.basis


def test_a_single_pair_is_no_evidence_and_two_comparisons_of_one_pair_are() -> None:
    single = replace(past_of(0.3), of_one_pair=frozenset({"ttft_s"}))
    assert repeated(spec_of(), [single], TIMED) == {}
    both = repeated(spec_of(), [single, single], TIMED)["ttft_s"]
    assert both == repeated(spec_of(), [past_of(0.3), past_of(0.3)], TIMED)["ttft_s"]
    mine = replace(single, code=code_hash())
    older = replace(past_of(0.9), code="older")
    assert repeated(spec_of(), [mine, older], TIMED)["ttft_s"].centre == pytest.approx(0.6)
    lone = replace(past_of(-0.3, curve="quality", variable="weights", values=("none", "w8a8")),
                   of_one_pair=frozenset({"quality"}))  # fmt: skip
    usual, _ = quality(spec_of("weights", ("none", "w8a8")), [lone], None)
    assert usual is not None and usual.provenance == "assumed"


def test_stored_comparisons_of_this_machine_alone_count(calibrated: Any, tmp_path: Any) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = spec_of().to_dict()
    stored_comparison(store, spec, {"ttft_s": 0.5, "itl_s": 1.0, "output_tokens_per_s": 2.0, "cost_per_request": 0.5})
    found = predict(spec, store)
    assert found.curve("ttft_s").source == "earlier runs" and found.curve("ttft_s").verdict == "better"
    assert found.curve("output_tokens_per_s").median_pct == pytest.approx(100, abs=1)
    assert found.curve("itl_s").verdict == "no difference" and not found.is_empty
    elsewhere = {**identity(spec), "environment": {**identity(spec)["environment"], "cpu": "another"}}
    other = Store(tmp_path / "other" / "runs.sqlite3")
    stored_comparison(other, spec, dict.fromkeys(TIMED, 0.5), identity=elsewhere)
    assert predict(spec, other).curve("ttft_s").source != "earlier runs"


# -- bands -----------------------------------------------------------------------------------------------------------


def test_without_outcomes_a_band_is_about_that_of_a_normal_distribution() -> None:
    assert 1.28 <= band_factor("simulator", "ttft_s", []) <= 1.7
    assert assumed(ASSUMED) == sorted(assumed(ASSUMED))


def test_outcomes_far_off_widen_the_band_and_near_ones_narrow_it() -> None:
    start = band_factor("simulator", "ttft_s", [])
    far = [past_of(0.3, said=0.0) for _ in range(40)]
    near = [past_of(0.02, said=0.0) for _ in range(40)]
    assert band_factor("simulator", "ttft_s", far) == pytest.approx(3.0, rel=0.05)
    assert band_factor("simulator", "ttft_s", near) < start / 2
    assert band_factor("earlier runs", "ttft_s", far) == start  # another source's errors
    assert band_factor("simulator", "ttft_s", [past_of(99.0, said=0.0)] * 40) == WIDEST


def test_bands_made_of_outcomes_cover_about_four_of_five_new_ones() -> None:
    import random

    chance = random.Random(4)
    past: list[Past] = []
    covered = 0
    for number in range(400):
        # The source is off by three times what it believes.
        change = chance.gauss(0.2, 0.3)
        if number >= 100:
            covered += abs(change - 0.2) <= band_factor("simulator", "ttft_s", past) * 0.1
        past.append(past_of(change, said=0.2))
    assert 0.74 <= covered / 300 <= 0.86


def test_earlier_errors_of_a_variable_move_the_estimate_in_its_own_direction() -> None:
    estimate = Estimate(0.5, 0.1, "simulator", "simulated", "")
    past = [past_of(0.7, said=0.5) for _ in range(6)]  # going up, it is 0.2 more than simulated
    up = corrected(spec_of(), "ttft_s", estimate, past)
    down = corrected(spec_of(values=(8, 2)), "ttft_s", estimate, past)
    assert up.centre == pytest.approx(0.5 + 0.2 * 6 / 8) and up.uncorrected == 0.5
    assert down.centre == pytest.approx(0.5 - 0.2 * 6 / 8)
    assert corrected(spec_of(), "ttft_s", estimate, past[:1]).centre == 0.5
    assert corrected(spec_of("block_size", (16, 32)), "ttft_s", estimate, past).centre == 0.5


def test_the_direction_of_a_choice_is_that_of_the_registry() -> None:
    assert direction("max_num_seqs", (2, 8)) == 1 and direction("max_num_seqs", (8, 2)) == -1
    assert direction("weights", ("none", "w8a8")) == -direction("weights", ("w8a8", "none")) != 0
    assert direction("batching", ("static", "static")) == 0


def test_the_verdict_of_a_change_knows_which_way_is_better() -> None:
    assert verdict_of("ttft_s", math.log(0.8)) == "better" and verdict_of("ttft_s", math.log(1.2)) == "worse"
    assert verdict_of("output_tokens_per_s", math.log(1.2)) == "better"
    assert verdict_of("itl_s", math.log(1.03)) == "no difference"
    assert verdict_of("quality", math.log(0.97)) == "worse"


# -- the simulator ---------------------------------------------------------------------------------------------------


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    monkeypatch.setattr(prediction_simulated, "tokenizer_of", lambda config: None)
    return calibrated_here


def test_a_calibrated_machine_predicts_what_a_scheduling_variable_does(calibrated: Any) -> None:
    calibrated()
    found = predict(spec_of("max_num_seqs", (1, 8), rate_rps=50), None)
    assert found.curve("ttft_s").verdict == "better" and found.curve("output_tokens_per_s").verdict == "better"
    assert found.curve("ttft_s").provenance == "simulated"
    low, high = found.curve("ttft_s").band80_pct or (0, 0)
    assert low < (found.curve("ttft_s").median_pct or 0) < high < 0
    assert found.curve("quality").exact and found.curve("quality").verdict == "no difference"
    json.dumps(found.to_json(), allow_nan=False)


def test_what_changes_nothing_in_the_plans_is_predicted_to_change_nothing(calibrated: Any) -> None:
    calibrated()
    found = predict(spec_of("kv_watermark", (0.01, 0.05)), None)
    assert {found.curve(name).verdict for name in TIMED} == {"no difference"}


def test_one_way_and_back_are_inverse(calibrated: Any) -> None:
    calibrated()
    there, back = (predict(spec_of("max_num_seqs", values, rate_rps=50), None) for values in ((1, 8), (8, 1)))
    first, second = there.curve("ttft_s").centre_ln or 0, back.curve("ttft_s").centre_ln or 0
    assert first == pytest.approx(-second, abs=0.05)


def test_two_calibrations_predict_formats_and_one_alone_is_computed_and_wider(calibrated: Any) -> None:
    calibrated({"weights": "w8a8"}, times=0.5)
    calibrated()
    own = predict(spec_of("weights", ("none", "w8a8"), concurrency=2), None)
    assert own.curve("itl_s").source == "simulator" and own.curve("itl_s").verdict == "better"
    assert not own.curve("quality").exact and own.curve("quality").provenance == "assumed"
    borrowed = predict(spec_of("weights", ("none", "w8a16"), concurrency=2), None)
    assert borrowed.curve("itl_s").source == "arithmetic" and borrowed.curve("itl_s").provenance == "computed"
    assert (borrowed.curve("itl_s").scale_ln or 0) > (own.curve("itl_s").scale_ln or 0)
    assert any("calibrate --simulator --set weights=w8a16" in note for note in borrowed.notes)


def test_what_nothing_predicts_says_measure(calibrated: Any) -> None:
    found = predict(spec_of(), None)
    assert found.is_empty and "calibrate --simulator" in found.curve("ttft_s").basis
    calibrated()
    for variable, values in (("kernels", ("torch", "auto")), ("speculation", ("off", "ngram"))):
        found = predict(spec_of(variable, values), None)
        assert found.is_empty and found.notes[0].startswith("cannot predict: measure")
    servers = {"endpoints": {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}}
    assert predict({**LOAD, **servers}, None).is_empty
    capacity = predict(spec_of(measure="capacity", slo="ttft_p95=1"), None)
    assert capacity.is_empty and "capacities" in capacity.curve("itl_s").basis


# -- quality -----------------------------------------------------------------------------------------------------------


def test_outputs_that_are_the_same_by_construction_have_no_band() -> None:
    estimate, why = quality(spec_of("block_size", (16, 32)), [], None)
    assert estimate is not None and estimate.exact and not why


def test_fewer_bits_are_usually_worse_and_the_way_back_is_better() -> None:
    down, _ = quality(spec_of("weights", ("none", "w4a16-rtn")), [], None)
    up, _ = quality(spec_of("weights", ("w4a16-rtn", "none")), [], None)
    assert down is not None and up is not None
    assert verdict_of("quality", down.centre) == "worse" and up.centre == -down.centre and down.scale == up.scale
    nothing, why = quality(spec_of("model", ("embedded", "embedded-wide")), [], None)
    assert nothing is None and "embedded-wide" in why


def test_a_measured_quality_of_the_same_values_outweighs_what_is_usual() -> None:
    past = [past_of(-0.3, curve="quality", variable="weights", values=("none", "w8a8"), workload="chat")]
    found, _ = quality(spec_of("weights", ("none", "w8a8")), past, None)
    assert found is not None and found.centre == pytest.approx(-0.3) and found.provenance == "measured"


def test_a_stored_evaluation_says_what_a_format_loses(tmp_path: Any) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("eval", {"vary": ["weights", ["none", "w8a8"]], "settings": {}})
    rows = [{"text": "essay", "change_pct": 50.0}, {"text": "all texts", "change_pct": 5.0}]
    store.update_run(run_id, state="done", result={"candidates": [{"label": "weights=w8a8", "texts": rows}]})
    found, _ = quality(spec_of("weights", ("none", "w8a8")), [], store)
    assert found is not None and found.centre == pytest.approx(-math.log(1.05)) and run_id in found.basis
    other, _ = quality(spec_of("weights", ("none", "w8a16")), [], store)
    assert other is not None and other.provenance == "assumed"


def test_a_wrong_spec_is_refused() -> None:
    with pytest.raises(InputError):
        predict({"variable": "batching", "values": ["static", "magic"]}, None)
    with pytest.raises(InputError, match="predictions"):
        CompareSpec.from_dict({"predictions": "better"})


def test_the_curves_of_a_prediction_are_those_of_a_comparison() -> None:
    made = Prediction("batching", "static", "continuous", tuple(
        CurvePrediction(name, None, None, None, "none", None, "") for name in CURVES
    ))  # fmt: skip
    assert made.is_empty and made.to_json()["from_value"] == "static"


def test_other_loads_stand_in_where_nothing_else_predicts_and_are_wider(calibrated: Any, tmp_path: Any) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    ratios = {"ttft_s": 0.5, "itl_s": 0.5, "output_tokens_per_s": 2.0, "cost_per_request": 0.5}
    stored_comparison(store, spec_of("kernels", ("torch", "auto"), workload="chat").to_dict(), ratios)
    found = predict(spec_of("kernels", ("auto", "torch"), concurrency=2), store)
    assert found.curve("itl_s").source == "other loads" and found.curve("itl_s").verdict == "worse"
    assert (found.curve("itl_s").scale_ln or 0) > 0.2 and not found.notes
    assert predict(spec_of("attention", ("naive", "flash")), store).is_empty


def test_drafts_on_repeating_answers_say_nothing_of_others(calibrated: Any, tmp_path: Any) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    ratios = {"ttft_s": 1.0, "itl_s": 0.5, "output_tokens_per_s": 2.0, "cost_per_request": 0.5}
    stored_comparison(store, spec_of("speculation", ("off", "ngram"), workload="copy").to_dict(), ratios)
    assert predict(spec_of("speculation", ("off", "ngram"), workload="mixed"), store).is_empty
    assert predict(spec_of("speculation", ("off", "ngram"), workload="code"), store).curve("itl_s").verdict == "better"
