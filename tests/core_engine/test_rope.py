"""Rope scaling: frequencies, attention factor and far positions are transformers'; what is not computed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.model.rope import RopeSpec, cos_and_sin, inverse_frequencies
from core_engine.model.spec import DecoderSpec
from ledger.errors import InputError
from tests.core_engine.conftest import load_fp32, make_tiny
from tests.core_engine.oracle import hidden_in_chunks, ragged_prompts

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {**LLAMA3, "original_max_position_embeddings": 1024},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    "yarn-attention-factor": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 1024,
        "attention_factor": 0.7,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
    },
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 512,
        "mscale": 0.8,
        "mscale_all_dim": 1.3,
        "truncate": False,
    },
}
BASE = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_attention_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 16_384,
}


def reference(scaling: dict[str, Any]) -> tuple[torch.Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = {key: value for key, value in BASE.items() if key != "model_type"}
    config = LlamaConfig(**settings, rope_parameters={**scaling, "rope_theta": 500_000.0})
    return ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_and_attention_factor_equal_the_reference(name: str, key: str) -> None:
    scaling = SCALINGS[name]
    if key == "rope_scaling":  # the older form: "type", and the base beside it
        old = {("type" if field == "rope_type" else field): value for field, value in scaling.items()}
        config = {**BASE, key: old, "rope_theta": 500_000.0}
    else:
        config = {**BASE, key: {**scaling, "rope_theta": 500_000.0}}
    rope = RopeSpec.from_config(config)
    inv_freq, attention_factor = reference(scaling)
    torch.testing.assert_close(inverse_frequencies(rope, 64), inv_freq, rtol=1e-6, atol=0)
    assert rope.attention_factor == pytest.approx(attention_factor, rel=1e-12)


def test_the_attention_factor_multiplies_cos_and_sin() -> None:
    cos, sin = cos_and_sin(torch.tensor([0, 7]), torch.tensor([1.0, 0.1]), 1.5)
    assert cos.shape == (2, 4) and cos[0].tolist() == [1.5] * 4
    torch.testing.assert_close(cos**2 + sin**2, torch.full((2, 4), 2.25))


@pytest.mark.parametrize(
    "config", ["Llama-3.1-8B", "Llama-3.2-1B", "Qwen2.5-7B-Instruct", "Mistral-7B-v0.1", "Qwen3-8B"]
)
def test_published_configs_give_the_reference_frequencies(shared_dir: Path, config: str) -> None:
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    raw = json.loads((shared_dir / "data" / "configs" / f"{config}.json").read_text())
    spec, published = DecoderSpec.from_config(raw), AutoConfig.for_model(**raw)
    kind = published.rope_parameters["rope_type"]
    ours = inverse_frequencies(spec.rope, spec.head_dim)
    if kind == "default":
        theta = published.rope_parameters["rope_theta"]
        expected = 1.0 / theta ** (torch.arange(0, spec.head_dim, 2).float() / spec.head_dim)
    else:
        expected = ROPE_INIT_FUNCTIONS[kind](published)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["default", *SCALINGS])
def test_logits_at_position_9000_equal_the_reference(name: str, tmp_path: Path) -> None:
    scaling = {**SCALINGS.get(name, {"rope_type": "default"}), "rope_theta": 10_000.0}
    model = make_tiny(
        "llama",
        tmp_path,
        rope_parameters=scaling,
        max_position_embeddings=16_384,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=32,
        intermediate_size=32,
    )
    decoder = load_fp32(tmp_path).decoder
    ids = ragged_prompts((9001,))[0]
    with torch.inference_mode():
        expected = model(torch.tensor([ids]), logits_to_keep=2).logits[0]
        logits = decoder.logits(hidden_in_chunks(decoder, ids, 1500, 64)[-2:])
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rope_scaling": {"type": "longrope", "factor": 4, "long_factor": [1.0], "short_factor": [1.0]}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, "factor"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters"),
        ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 5.0}}, "rope_parameters"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor"),
        ({"rope_theta": 0}, "rope_theta"),
    ],
)
def test_a_scaling_that_can_not_be_computed_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        DecoderSpec.from_config({**BASE, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "smollm3"}, "model_type"),
        ({"model_type": "mixtral"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"model_type": "mistral", "layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ({"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["linear_attention"] * 2}, "layer_types"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"eos_token_id": "<eos>"}, "eos_token_id"),
        ({"vocab_size": None}, "vocab_size"),
        ({"hidden_size": -4}, "hidden_size"),
    ],
)
def test_a_feature_that_is_not_computed_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        DecoderSpec.from_config({**BASE, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 5}, (5, 5)),
        ({"model_type": "mistral", "sliding_window": None}, (None, None)),
        ({"model_type": "mistral"}, (4096, 4096)),  # the class default
        ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 5}, (None, None)),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}, (None, 5)),
    ],
)
def test_windows_follow_the_switches_of_the_family(change: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert DecoderSpec.from_config({**BASE, **change}).windows == windows
