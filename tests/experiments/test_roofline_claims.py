"""C02 (steps on the measured roofline) and C34 (a month of a 7B model), and the probe that times single steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import calibrate
from experiments.claims import bounds, run_claim
from experiments.step_probe import Probe, ProbedStep, probe_steps
from ledger.errors import InputError
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.operators import operators
from tests.experiments.test_calibrate import result as calibration

SMOL = load_model_spec("smollm2-135m")


def probe_with(*seconds: float) -> Any:
    """A probe whose steps took these seconds."""

    def probe(steps: Any, settings: Any, repeats: int) -> Probe:
        found = tuple({"median": s, "low": s, "high": s, "repeats": repeats} for s in seconds)
        return Probe(SMOL, "fp32", "cpu", 2, found)

    return probe


@pytest.fixture(autouse=True)
def calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    calibrate.store(calibration())  # 100 GFLOP/s, 30 GB/s


def test_c02_puts_measured_steps_against_the_calibration() -> None:
    found = bounds.check({"repeats": 5}, probe_with(2.0, 0.03, 0.2))
    assert found["verdict"] == "holds with a limit"
    prefill, decode, large = found["evidence"][:3]
    flops = sum(item.flops for item in operators(SMOL, "prefill", 1, 512, weights="fp32", kv_dtype="fp32"))
    assert prefill["flops_per_s"] == pytest.approx(flops / 2.0)
    assert prefill["compute_share"] == pytest.approx(flops / 2.0 / 100e9)
    assert (prefill["bound"], decode["bound"], large["bound"]) == ("compute", "memory", "compute")
    # a decode step reads the 538 MB of weights in fp32
    assert decode["bytes_per_s"] == pytest.approx(0.5645e9 / 0.03, rel=0.001)
    assert prefill["provenance"] == "measured" and prefill["repeats"] == 5
    json.dumps(found, allow_nan=False)


def test_c02_shows_the_crossover_and_242_flop_a_byte_for_a_latent() -> None:
    evidence = bounds.check({}, probe_with(2.0, 0.03, 0.2))["evidence"]
    intensity = {row["model"]: row["flop_per_byte"] for row in evidence if "flop_per_byte" in row}
    assert intensity["llama-2-7b"] == 1 and intensity["llama-3.1-8b"] == 4
    assert intensity["deepseek-v3"] == pytest.approx(241.8, abs=0.05)
    crossover = {(row["model"], row["weights"]): row["batch"] for row in evidence if row["part"] == "crossover"}
    assert 295 < crossover[("llama-3.1-8b", "bf16")] < 350
    assert crossover[("llama-3.1-8b", "w4a16")] < crossover[("llama-3.1-8b", "bf16")] / 2
    assert crossover[("mixtral-8x7b", "bf16")] > 1000


def test_c02_is_undecided_when_steps_are_far_from_every_ceiling() -> None:
    found = bounds.check({}, probe_with(20.0, 0.3, 2.0))
    assert found["verdict"] == "undecided" and "too far" in found["reason"]


def test_c02_fails_where_bandwidth_is_so_high_that_decode_computes() -> None:
    fast = calibration()
    fast["devices"][0]["bandwidth"]["read"]["median"] = 1e15
    calibrate.store(fast)
    assert bounds.check({}, probe_with(2.0, 0.03, 0.2))["verdict"] == "does not hold here"


def test_c02_holds_without_a_limit_where_no_tried_batch_computes() -> None:
    prefill = {"seq_len": 512, "compute_share": 0.8, "bound": "compute"}
    decode = {"bandwidth_share": 0.8, "bound": "memory"}
    assert bounds.judge([prefill, decode, {"bound": "memory"}], crossover=None)[0] == "holds"


def test_c02_calibrates_first_when_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate.calibration_file().unlink()
    monkeypatch.setattr(calibrate, "calibrate", lambda: calibration(date="2030-01-01T00:00:00+00:00"))
    found = bounds.check({}, probe_with(2.0, 0.03, 0.2))
    assert "2030-01-01" in found["evidence"][0]["ceilings"] and calibrate.stored() is not None


def test_c34_is_12_96_billion_tokens_a_month_with_cards_and_three_cuts() -> None:
    found = run_claim("C34")
    values = {row["name"]: row["value"] for row in found["evidence"]}
    assert found["verdict"] == "holds"
    assert values["output tokens a second"] == 5_000
    assert values["output tokens a month"] == 12_960_000_000
    each = values["output tokens/s of a card at the roof"]
    assert values["cards"] == -(-5_000 // (each * 0.7))
    assert values["cost of a month"] == values["cards"] * 720
    assert values["cost of a request"] == pytest.approx(values["cost of a month"] / 25_920_000)
    month, bills = values["cost of a month"], [row["value"] for row in found["evidence"] if "month, " in row["name"]]
    assert len(bills) == 4 and bills[3] == min(bills) and all(bill % 720 == 0 for bill in bills)
    assert month - bills[3] < sum(month - bill for bill in bills[:3])
    assert f"all three {bills[3] / 720:.0f};" in found["reason"]
    assert "assumed" in found["evidence"][4]["formula"] and "no engine reaches" in found["reason"]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch is not installed")
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.core_engine.conftest import TINY, write_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    LlamaForCausalLM(LlamaConfig(**TINY)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def test_the_probe_times_each_step_with_the_model_of_the_settings(tiny_model: Path) -> None:
    steps = (ProbedStep("prefill", 2, 33), ProbedStep("decode", 3, 40))
    seen: list[ProbedStep] = []
    found = probe_steps(steps, {"model": str(tiny_model), "device": "cpu", "dtype": "fp32"}, 4, seen.append)
    assert (found.dtype, found.device, seen) == ("fp32", "cpu", list(steps))
    assert found.spec == ModelSpec.from_config(json.loads((tiny_model / "config.json").read_text()), found.spec.name)
    assert all(0 < item["low"] <= item["median"] <= item["high"] and item["repeats"] == 4 for item in found.seconds)


def test_the_probe_refuses_what_the_model_cannot_hold(tiny_model: Path) -> None:
    with pytest.raises(InputError, match="512 positions"):
        probe_steps((ProbedStep("decode", 1, 513),), {"model": str(tiny_model)}, 1)
    with pytest.raises(InputError, match="repeats"):
        probe_steps((ProbedStep("decode", 1, 5),), {"model": str(tiny_model)}, 0)
