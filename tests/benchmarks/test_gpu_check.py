"""What gpu-check measures, dry on interpreted kernels: that its parts run, and that they count right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from gpu import runs
from gpu.kernels import _checked, kernel_checks
from gpu.models import SHAPES, random_model
from gpu.steps import Ceilings, StepKind, measured, operations, read_bytes

from core_engine.kv.format import KVFormat
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes

TINY: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 300, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_size": 64,
    "num_key_value_heads": 2, "num_attention_heads": 4, "intermediate_size": 128, "num_hidden_layers": 1,
    "tie_word_embeddings": False,
}  # fmt: skip
CPU = torch.device("cpu")
ONE = Ceilings(1.0, 1.0)


def tiny(**settings: Any):
    return random_model("tiny", {"kernels": "triton", **settings}, TINY, CPU)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("Llama-3.2-1B", 1.24), ("Llama-3.1-8B", 8.03), ("Qwen2.5-7B", 7.62), ("enlarged target", 0.53)],
)
def test_the_shapes_are_those_of_the_models(name: str, billions: float) -> None:
    shapes = parameter_shapes(ModelSpec.from_config(SHAPES[name]))
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert count / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_step_is_measured_with_its_bytes_and_operations() -> None:
    loaded = tiny()
    found = measured(loaded, StepKind(2, 20), ONE)
    weights = 2 * 300 * 64 + 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128 + 3 * 64
    assert loaded.weights.num_bytes() == 4 * weights
    assert found["read_bytes"] == 4 * (weights - 300 * 64) + 2 * 2 * 16 * 2 * 2 * 16 * 4, "two blocks a row"
    linear = 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128
    assert found["flops"] == 2 * (linear * 2 + 2 * 300 * 64) + 4 * 64 * 2 * 20
    assert "CUDA" in found["captured"]
    assert found["read_share"] == pytest.approx(found["read_bytes"] / found["device_ms"] * 1e3)


def test_a_prefill_counts_every_pair_it_may_see() -> None:
    loaded, kind = tiny(), StepKind(1, 8, prefill=True)
    linear = 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128
    assert operations(loaded, kind) == 2 * (linear * 8 + 300 * 64) + 4 * 64 * (8 * 9 // 2)
    assert read_bytes(loaded, kind, KVFormat("fp32")) == loaded.weights.num_bytes() - 4 * 300 * 64


@pytest.mark.parametrize("weights", ["w4a16-rtn", pytest.param("w8a8", marks=pytest.mark.slow)])
def test_random_codes_are_held_in_few_bits(weights: str) -> None:
    loaded = tiny(weights=weights)
    plain = 4 * (2 * 300 * 64 + 3 * 64)
    assert plain < loaded.weights.num_bytes() < plain + (64 * (2 * 64 + 2 * 32) + 3 * 64 * 128) * 1.2
    kind = StepKind(1, 4)
    assert measured(loaded, kind, ONE)["read_bytes"] < read_bytes(tiny(), kind, KVFormat("fp32"))


@pytest.mark.slow
def test_switches_and_drafts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny()
    monkeypatch.setattr(runs, "WARM_UP", 1)
    monkeypatch.setattr(runs, "prompts", lambda batch: [[5 + at, 6, 7] for at in range(batch)])
    monkeypatch.setattr(runs, "base_settings", lambda batch: {"max_num_seqs": batch, "kv_memory_mib": 1})
    found = runs.switches(loaded, 1, 5, rounds=1)
    assert set(found["step_ms"]) == {"all on", "overlap off", "graph off", "fused_ops off", "all off"}
    assert found["times_all_on"]["all on"] == 1.0
    (row,) = runs.speculation(loaded, (1.0,), 2, 7)["rows"]
    assert row["equal"] and row["alpha"] == 1.0 and row["tokens_per_pass"] > 2


@pytest.mark.slow
def test_the_checks_of_kernels_pass_in_the_interpreter() -> None:
    with torch.inference_mode():
        found = kernel_checks(CPU, most=4)
    assert len(found["checks"]) == 3 + 4 + 4 and found["passed"] and not found["all"], found


def test_a_wrong_number_is_no_pass() -> None:
    nothing = torch.full((2, 3), float("nan"))
    assert not _checked("", nothing, torch.ones(2, 3), 1.0)["error"] <= 1.0
