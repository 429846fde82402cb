import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import InputError
from ledger.hardware import Accelerator, accelerator
from ledger.model_spec import load_model_spec
from ledger.operators import StepCosts
from ledger.roofline import MAX_BATCH, achieved, attention_intensity, crossover_batch, roofline_report, timed
from tests.ledger.test_operators import LLAMA, LLAMA_8B, config

DEVICE = Accelerator("d", "device", "", 10**12, "driver", 1e12, {"bf16": 20e12, "int8": 40e12}, 1e11, 100.0, (), "user")


def llama(kv_heads: int) -> Any:
    from ledger.model_spec import ModelSpec

    return ModelSpec.from_config({**LLAMA, "num_key_value_heads": kv_heads})


def test_time_is_the_longer_of_computing_and_moving() -> None:
    for operator in StepCosts(LLAMA_8B).operators("prefill", 1, 500):
        row = timed(operator, DEVICE)
        assert row.time_s == max(operator.flops / 20e12, operator.bytes / 1e12)
        assert row.bound == ("compute" if operator.flops / operator.bytes > 20 else "memory")


def test_decode_of_one_sequence_is_bound_by_memory_and_a_long_prefill_by_compute() -> None:
    decode, prefill = (
        roofline_report(LLAMA_8B, accelerator("h100"), *step) for step in (("decode", 1, 4096), ("prefill", 1, 4096))
    )
    assert decode["totals"]["bound"] == "memory"
    assert prefill["totals"]["bound"] == "compute"
    # 15.0 GB of matrices and 0.54 GB of cache at 3,350 GB/s
    assert decode["totals"]["time_s"] == pytest.approx(15.55e9 / 3350e9, rel=0.01)


@pytest.mark.parametrize("weights", ["bf16", "w8a16", "w4a16", "w8a8"])
def test_the_crossover_is_the_first_batch_whose_linear_layers_compute_as_long_as_they_read(weights: str) -> None:
    costs = StepCosts(LLAMA_8B, weights)
    found = crossover_batch(costs, DEVICE)

    def computes(batch: int) -> bool:
        rows = [timed(operator, DEVICE) for operator in costs.decode_linear(batch)]
        return sum(row.compute_s for row in rows) >= sum(row.memory_s for row in rows)

    assert found == next(batch for batch in range(1, 1000) if computes(batch))


def test_the_crossover_lies_above_the_rule_of_thumb_because_activations_move_too() -> None:
    ridge = DEVICE.ridge("bf16")
    found = crossover_batch(StepCosts(LLAMA_8B), DEVICE)
    assert found is not None and ridge < found < 1.2 * ridge
    quarter = crossover_batch(StepCosts(LLAMA_8B, "w4a16"), DEVICE)
    assert quarter is not None and quarter < 0.45 * found  # the head stays 16-bit


def test_experts_cross_later_than_a_dense_model(shared_dir: Path) -> None:
    dense, sparse = (config(shared_dir, name) for name in ("Mistral-7B-v0.1", "Mixtral-8x7B-v0.1"))
    before, after = (crossover_batch(StepCosts(spec), accelerator("h100")) for spec in (dense, sparse))
    assert before is not None and after is not None and after > 3 * before


def test_no_crossover_is_none_and_says_so() -> None:
    slow = replace(DEVICE, bandwidth_bytes_per_s=1e9)
    report = roofline_report(LLAMA_8B, slow, "decode", 1, 10)
    assert report["crossover_batch"] is None
    assert f"no batch up to {MAX_BATCH:,}" in report["crossover_how"]


@pytest.mark.parametrize(("kv_heads", "expected"), [(32, 1), (8, 4), (1, 32)])
def test_attention_intensity_is_the_query_heads_a_kv_head_serves(kv_heads: int, expected: float) -> None:
    assert attention_intensity(llama(kv_heads), 5000) == expected


def test_attention_intensity_of_a_latent_reaches_242(shared_dir: Path) -> None:
    assert attention_intensity(config(shared_dir, "DeepSeek-V3"), 5000) == pytest.approx(241.8, abs=0.05)
    assert attention_intensity(LLAMA_8B, 5000, kv_dtype="fp8") == 8


def test_attention_stays_bound_by_memory_at_any_batch_under_gqa() -> None:
    for batch in (1, 100, 10_000):
        report = roofline_report(LLAMA_8B, accelerator("h100"), "decode", batch, 2048)
        attention = next(row for row in report["operators"] if row["name"] == "attention (full)")
        assert attention["bound"] == "memory"


def test_totals_are_the_sums_of_the_operators(shared_dir: Path) -> None:
    for name in ("Llama-3.1-8B", "DeepSeek-V3", "gemma-4-E4B", "Jamba-v0.1"):
        report = roofline_report(config(shared_dir, name), accelerator("h200"), "decode", 8, 1000, tp=2)
        rows, totals = report["operators"], report["totals"]
        for field in ("flops", "bytes", "time_s", "link_bytes"):
            assert sum(row[field] for row in rows) == pytest.approx(totals[field])
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert totals["tokens_per_s"] == pytest.approx(8 / totals["time_s"])
        assert all(row["how"] and row["provenance"] == "computed" for row in rows)
        json.dumps(report, allow_nan=False)


def test_a_rate_the_card_lacks_is_said() -> None:
    report = roofline_report(LLAMA_8B, accelerator("a100"), "decode", 1, 10, weights="fp8")
    assert report["warnings"] == ["fp8 has no faster path on this accelerator: counted at its bf16 rate"]
    report = roofline_report(LLAMA_8B, accelerator("h100"), "decode", 1, 200_000)
    assert "131,072" in report["warnings"][0]


def test_tensor_parallelism_needs_a_link() -> None:
    with pytest.raises(InputError, match="link"):
        roofline_report(LLAMA_8B, replace(DEVICE, link_bytes_per_s=None), "decode", 1, 10, tp=2)
    slow, fast = (
        roofline_report(LLAMA_8B, replace(DEVICE, link_bytes_per_s=rate), "prefill", 1, 1000, tp=8)["totals"]["time_s"]
        for rate in (1e9, 1e12)
    )
    assert slow > fast


def test_a_measured_step_is_put_against_the_roof() -> None:
    found = achieved(10e12, 1e12, 2.0, DEVICE, "bf16")
    assert (found["flops_per_s"], found["bytes_per_s"]) == (5e12, 0.5e12)
    assert (found["compute_share"], found["bandwidth_share"]) == (0.25, 0.5)
    assert (found["bound"], found["roof_s"], found["roof_share"]) == ("memory", 1.0, 0.5)
    assert found["provenance"] == "measured"
    with pytest.raises(InputError, match="seconds"):
        achieved(1, 1, 0.0, DEVICE, "bf16")


@pytest.mark.parametrize("weights", ["q8_0", "q5_k", "q2_k"])
def test_a_router_kept_in_float32_needs_no_float32_rate(weights):
    """Activations are 16 bit; a card without a known plain rate must not refuse the whole model for it."""
    report = roofline_report(load_model_spec("qwen3-30b-a3b"), accelerator("a10g"), "decode", 4, 1024, weights=weights)
    assert report["totals"]["time_s"] > 0
    with pytest.raises(InputError, match="fp32"):
        roofline_report(load_model_spec("qwen3-30b-a3b"), accelerator("a10g"), "decode", 4, 1024, weights="fp32")
