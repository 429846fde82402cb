"""Presets are the published shapes: their parameter counts equal the published ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.errors import InputError
from ledger.kv_cache import kv_bytes_per_token_all_layers
from ledger.model_spec import load_model_spec
from ledger.presets import presets
from ledger.vision import vision_parameter_count
from ledger.weights import active_parameter_count, parameter_count

# Parameters that the safetensors index of each published checkpoint adds up to.
PUBLISHED = {
    "llama-3.2-3b": 3_212_749_824, "mistral-nemo-12b": 12_247_782_400, "mistral-small-24b": 23_572_403_200,
    "qwen2.5-72b": 72_706_203_648, "qwen3-235b-a22b": 235_093_634_560, "phi-4": 14_659_507_200,
    "gpt-oss-120b": 116_829_156_672, "glm-4.5-air": 106_852_245_504,
}  # fmt: skip
CONFIG_FILES = {
    "llama-2-7b": "Llama-2-7b-hf", "llama-2-13b": "Llama-2-13b-hf", "llama-2-70b": "Llama-2-70b-hf",
    "mistral-7b": "Mistral-7B-v0.1", "mixtral-8x7b": "Mixtral-8x7B-v0.1", "mixtral-8x22b": "Mixtral-8x22B-v0.1",
    "qwen2.5-7b": "Qwen2.5-7B-Instruct", "qwen2.5-32b": "Qwen2.5-32B-Instruct", "qwen3-vl-8b": "Qwen3-VL-8B-Instruct",
    "gemma-3-1b": "gemma-3-1b-it", "gemma-3-27b": "gemma-3-27b-it", "phi-3.5-mini": "Phi-3.5-mini-instruct",
    "phi-4-mini": "Phi-4-mini-instruct", "kimi-k2": "Kimi-K2-Instruct", "glm-4-9b": "GLM-4-9B-0414",
    "nemotron-3-nano": "Nemotron-3-Nano-30B-A3B", "olmo-3.1-32b": "Olmo-3.1-32B-Instruct",
    "llama-4-scout": "Llama-4-Scout-17B-16E-Instruct",
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_is_the_published_one(name):
    assert parameter_count(load_model_spec(name)) == PUBLISHED[name]


def test_presets_of_the_reference_models_have_the_reference_figures(shared_dir: Path):
    reference = json.loads((shared_dir / "data" / "configs" / "REFERENCE.json").read_text())
    by_name = {row["file"].removesuffix(".json").lower(): row for row in reference.values()}
    for name in set(presets()) - set(PUBLISHED):
        spec, row = load_model_spec(name), by_name[CONFIG_FILES.get(name, name).lower()]
        assert parameter_count(spec) + (vision_parameter_count(spec) or 0) == row["params_total"], name
        assert kv_bytes_per_token_all_layers(spec) == row["kv_bytes_per_token_all_attn_layers"], name
        if row["params_active_incl_embeddings"] is not None:
            assert active_parameter_count(spec) == row["params_active_incl_embeddings"], name


def test_no_preset_needs_a_guess():
    assert len(presets()) >= 50
    for name in presets():
        spec = load_model_spec(name)
        assert spec.max_position and not spec.assumed, name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"), ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"), ("embedded", "smollm2-135m"),
    ],
)  # fmt: skip
def test_a_hubs_name_finds_the_preset(written, name):
    assert load_model_spec(written).name == name


def test_a_version_of_another_shape_is_no_preset_but_gets_its_neighbours():
    """Mistral-7B v0.2 has no window: it must not count as v0.1."""
    with pytest.raises(InputError, match="mistral-7b"):
        load_model_spec("mistralai/Mistral-7B-Instruct-v0.2")
