"""What an evaluation says of bytes and speed beside quality, and candidates of several variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.model.loader import load_model
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import round_to_nearest
from experiments.quality.arms import Progress
from experiments.quality.evaluation import evaluate
from experiments.quality.held import change_of, format_of, held_by
from experiments.quality.items import Item
from experiments.quality.spec import EvalSpec
from experiments.quality.speed import median_interval
from experiments.quantization_setup import Choice, asked
from experiments.quantization_view import best_of, eval_command, format_rows, guesses, slice_lines
from ledger.errors import InputError
from tests.core_engine.conftest import make_llama

ITEMS = [Item(f"i{i}", "one", "the quick brown fox " * (1 + i), (" a", " b"), i % 2) for i in range(4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, hidden_size=96, intermediate_size=192)
    return directory


def settings(model: Path, **changes: Any) -> dict[str, Any]:
    return {"model": str(model), "dtype": "bf16", "threads": 1, "kv_memory_mib": 4, "device": "cpu", **changes}


def held(model: Path, **changes: Any) -> dict[str, Any]:
    config = EngineConfig.from_settings(settings(model, **changes))
    return held_by(config, load_model(config))


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("weights", ["none", "w8a16", "w8a8", "w4a16-rtn"])
def test_bytes_are_those_held_and_the_ledger_says_the_same(model: Path, weights: str, kernels: str) -> None:
    group = {"weight_group": "32"} if weights == "w4a16-rtn" else {}
    found = held(model, weights=weights, kernels=kernels, **group)
    config = EngineConfig.from_settings(settings(model, weights=weights, kernels=kernels, **group))
    loaded = load_model(config)
    assert found["weights"]["bytes"] == loaded.weights.num_bytes()
    assert found["weights"]["bits_per_weight"] == 8 * found["weights"]["bytes"] / found["weights"]["parameters"]
    if kernels == "torch":  # compiled kernels fill up the last panels
        assert found["unquantized"]["predicted_bytes"] == found["weights"]["bytes"]
    assert (found["unquantized"]["share"] == 1) == (weights == "none")
    assert (found["calibration"] is None) == (weights == "none")
    assert found["weights"]["provenance"] == "measured" and found["kv"]["provenance"] == "computed"


def test_kv_formats_hold_more_sequences_with_scales_counted(model: Path) -> None:
    plain, int8 = held(model), held(model, kv_dtype="int8")
    share = change_of(int8, plain)
    assert share["weights_share"] == 1 and 0.5 < share["kv_share"] < 1
    assert int8["kv"]["sequences"] > plain["kv"]["sequences"]
    assert plain["kv"]["bits_per_element"] == 16 and 8 < int8["kv"]["bits_per_element"] < 16
    per_sequence = plain["kv"]["bytes_per_token"] * plain["kv"]["sequence_tokens"]
    assert plain["kv"]["sequences"] == plain["kv"]["memory_bytes"] // per_sequence


@pytest.mark.parametrize(("bits", "group", "symmetric"), [(8, 64, True), (4, 32, True), (4, 32, False)])
def test_the_format_of_a_matrix_counts_every_byte_of_it(bits: int, group: int, symmetric: bool) -> None:
    matrix = round_to_nearest(torch.randn(48, 64), bits, group, symmetric)
    parts = [matrix.scale, *(part for part in (matrix.zero, matrix.minimum) if part is not None)]
    size = 48 * 64 * bits // 8 + sum(part.nbytes for part in parts)
    assert format_of(matrix).bytes_of((48, 64)) == size


def test_nested_scales_and_an_order_are_counted_too() -> None:
    codes = torch.zeros(4, 512, dtype=torch.uint8)
    inner = torch.ones(4, 16, dtype=torch.uint8)
    outer = torch.ones(4, 2, dtype=torch.float16)
    matrix = QuantizedMatrix(4, 32, codes, outer, minimum=outer, scale_codes=inner, minimum_codes=inner)
    assert format_of(matrix).bytes_of((4, 512)) == 4 * 512 // 2 + 2 * outer.nbytes + 2 * inner.nbytes
    ordered = QuantizedMatrix(4, 32, codes, inner.half(), order=torch.arange(512))
    assert format_of(ordered).bytes_of((4, 512)) == 4 * 512 // 2 + 2 * inner.numel() + 4 * 512


def test_speed_is_measured_on_request_in_pairs_with_the_baseline(model: Path) -> None:
    phases: list[str] = []
    report = Progress(lambda live: phases.append(live["phase"]))
    found = evaluate(
        {"w8": settings(model, weights="w8a16"), "kv": settings(model, kv_dtype="int8")}, settings(model), ITEMS, [],
        report, speed=True,
    )  # fmt: skip
    assert "speed" in phases and phases[-1] == "done"
    json = found.to_json()
    for arm in (json["baseline"], *json["candidates"]):
        assert [(s["phase"], s["batch"]) for s in arm["speed"]["steps"]] == [
            ("prefill", 1), ("decode", 1), ("decode", 8)
        ]  # fmt: skip
        for step in arm["speed"]["steps"]:
            tokens = step["seq_len"] if step["phase"] == "prefill" else step["batch"]
            assert step["tokens_per_s"] == pytest.approx(tokens / step["seconds"]["median"])
    for candidate in json["candidates"]:
        for step in candidate["speed"]["steps"]:
            low, high = step["speedup_ci95"]
            assert low <= step["speedup"] <= high and step["pairs"] >= 3
    pairs = json["candidates"][0]["speed"]["steps"][0]["pairs"] + json["candidates"][1]["speed"]["steps"][0]["pairs"]
    assert json["baseline"]["speed"]["steps"][0]["seconds"]["repeats"] == pairs
    without = evaluate({"w8": settings(model, weights="w8a16")}, settings(model), ITEMS, []).to_json()
    assert without["candidates"][0]["speed"] is None and without["candidates"][0]["held"] is not None
    alone = evaluate({}, settings(model), ITEMS, [], speed=True).to_json()
    assert alone["baseline"]["speed"]["steps"][1]["tokens_per_s"] > 0


def test_the_interval_of_a_median_is_of_ranks_and_one_pair_that_was_held_up_does_not_widen_it() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 900.0]
    assert median_interval(values) == [1.1, 1.7]  # 2 P(Binomial(9, 1/2) < 2) = 3.9 %
    assert median_interval(values[:6]) == [1.0, 1.5]  # 3.1 %
    assert median_interval(values[:5]) is None


def test_candidates_may_differ_from_each_other_in_several_variables() -> None:
    spec = EvalSpec.from_dict(
        {"settings": {"dtype": "bf16"}, "arms": [{"weights": "w8a8"}, {"kv_dtype": "int4", "kv_key_axis": "token"}]}
    )
    assert list(spec.candidates()) == ["weights=w8a8", "kv_dtype=int4, kv_key_axis=token"]
    assert (spec.baseline_config().dtype, spec.baseline_config().weights) == ("bf16", "none")
    assert EvalSpec.from_dict(spec.to_dict()) == spec
    found = asked(spec.to_dict())
    assert [one.changed for one in found.values()] == [dict(arm) for arm in spec.arms]
    assert eval_command({**spec.to_dict(), "speed": True}) == (
        "trilemma eval --set dtype=bf16 --candidate weights=w8a8 --candidate kv_dtype=int4,kv_key_axis=token --speed"
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"arms": [{"weights": "w8a8"}], "vary": ("dtype", ["bf16"])}, "--vary"),
        ({"arms": [{"dtype": "bf16"}], "settings": {"dtype": "fp32"}}, "--candidate"),
        ({"arms": [{"weights": "w3"}]}, "weights"),
        ({"arms": [{"weights": "w8a8"}], "predictions": {"nope": {}}}, "predictions"),
        ({"arms": [{"weights": "w8a8"}], "predictions": {"weights=w8a8": {"speed": 1}}}, "predictions"),
        ({"arms": [{"weights": "w8a8"}], "predictions": {"weights=w8a8": {"memory_pct": "much"}}}, "memory_pct"),
    ],
)
def test_a_wrong_spec_names_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        EvalSpec.from_dict(spec)
    assert error.value.field == field


def test_a_choice_of_formats_is_a_candidate_each_and_only_takes_what_means_something_for_it() -> None:
    spec = Choice(["as-stored", "w8a8", "w4a16-awq"], ["int2-outliers"], "32", "off", "int8", "bf16", "embedded", 20)
    assert spec.spec() == {
        "settings": {"dtype": "bf16"},
        "arms": [
            {"weights": "as-stored"},
            {"weights": "w8a8", "head_weights": "int8"},
            {"weights": "w4a16-awq", "weight_group": "32", "weight_symmetric": "off", "head_weights": "int8"},
            {"kv_dtype": "int2", "kv_protect": "outliers"},
        ],
        "limit": 20,
        "speed": True,
    }
    with pytest.raises(InputError, match="at least one"):
        Choice([], []).spec()


def result() -> dict[str, Any]:
    """Two slices; "a" loses one of them while its mean does not move, "b" loses nothing."""

    def row(name: str, verdict: str, points: float) -> dict[str, Any]:
        return {"slice": name, "items": 9, "accuracy": 0.5, "change_points": points, "change_ci95": [points, points],
                "logprob_change": 0.0, "logprob_ci95": None, "scored_by": "accuracy", "p_adjusted": 0.01,
                "verdict": verdict}  # fmt: skip

    def base(name: str) -> dict[str, Any]:
        return {"slice": name, "items": 9, "accuracy": 0.6, "ci95": [0.5, 0.7], "chance": 0.25, "signal": True}

    def holds(size: int) -> dict[str, Any]:
        kv = {"bytes_per_token": 100.0, "bits_per_element": 16.0, "sequences": 4}
        weights = {"bytes": size, "bits_per_weight": size / 100}
        return {"weights": weights, "kv": kv, "unquantized": {"share": 0.5}, "calibration": None}

    def candidate(label: str, size: int, lost: bool) -> dict[str, Any]:
        slices = [row("x", "worse" if lost else "no difference", -9.0), row("y", "no difference", 0.0),
                  row("all", "no difference", -0.5)]  # fmt: skip
        return {"label": label, "changed": {"weights": "w8a8"}, "slices": slices, "texts": [], "texts_reason": None,
                "held": holds(size), "speed": None}  # fmt: skip

    return {
        "baseline": {"slices": [base("x"), base("y"), base("all")], "texts": [], "held": holds(1600), "settings": {}},
        "candidates": [candidate("a", 400, True), candidate("b", 800, False)],
    }


def test_what_a_mean_hides_is_marked_and_the_smallest_sound_format_is_named() -> None:
    rows, lines = format_rows(result()), slice_lines(result())
    assert [row.lost for row in rows] == [(), ("x",), ()]
    assert [cell.mean_hides for cell in lines[0].cells] == [True, False]
    best = best_of(rows)
    assert best is not None and best.label == "b" and best.memory_share == 0.5
    assert best_of(rows[:2]) is None


@pytest.mark.parametrize(("ends", "sound"), [([1.5, 3.0], False), ([-2.0, 3.0], True), ([0.2, 0.8], True)])
def test_a_format_whose_texts_got_worse_for_certain_is_not_named_as_without_loss(ends, sound) -> None:
    told = result()
    told["candidates"][1]["texts"] = [{"perplexity": 20.0, "change_pct": 2.0, "change_ci95": ends}]
    rows = format_rows(told)
    assert rows[2].perplexity_lost is not sound
    best = best_of(rows)
    assert (best is not None and best.label == "b") is sound


def test_predictions_stand_beside_what_was_measured() -> None:
    found = guesses(format_rows(result()), {"a": {"memory_pct": 20.0, "decode_speedup": None, "accuracy_points": -1.0}})
    assert [(guess.figure, guess.expected, guess.measured.value) for guess in found] == [
        ("memory_pct", 20.0, 25.0), ("accuracy_points", -1.0, -0.5)
    ]  # fmt: skip
