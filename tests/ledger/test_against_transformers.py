"""Every parameter's name and shape against transformers' own models, built on the meta device."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ledger.families import FAMILIES
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NOT_IN_TRANSFORMERS = {"baichuan", "internlm2", "kimi_k2", "mimo"}
NOT_TEXT = ("visual", "vision", "multi_modal_projector")


def their_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    kept = {key: value for key, value in config.items() if key not in ("auto_map", "quantization_config")}
    theirs = type(transformers.AutoConfig.for_model(config["model_type"])).from_dict(kept)
    with torch.device("meta"):
        try:
            model = transformers.AutoModelForCausalLM.from_config(theirs)
        except ValueError:
            model = transformers.AutoModelForImageTextToText.from_config(theirs)
    return {
        name.replace("model.language_model.", "model."): tuple(parameter.shape)
        for name, parameter in model.named_parameters()
        if not any(mark in name for mark in NOT_TEXT)
    }


def test_real_configs(shared_dir: Path):
    folder = shared_dir / "data" / "configs"
    compared = 0
    for path in sorted(folder.glob("*.json")):
        config = json.loads(path.read_text())
        if "model_type" not in config or config["model_type"] in NOT_IN_TRANSFORMERS:
            continue
        assert parameter_shapes(ModelSpec.from_config(config)) == their_shapes(config), path.name
        compared += 1
    assert compared >= 40


TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
MOE = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 20,
    "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 2, "n_group": 1, "topk_group": 1, **MOE,
}  # fmt: skip
NEMOTRON = {
    "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "conv_kernel": 4,
    "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 48, "head_dim": 16, **MOE,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 24},
        {"model_type": "llama", "tie_word_embeddings": True},
        {"model_type": "qwen3", "attention_bias": True},
        {"model_type": "glm4", "pad_token_id": 0},
        {"model_type": "glm4", "attention_bias": False, "head_dim": 16, "pad_token_id": 0},
        {"model_type": "olmo2", "attention_bias": True},
        {"model_type": "cohere", "use_qk_norm": True, "attention_bias": True},
        {"model_type": "gemma2", "attention_bias": True},
        {"model_type": "gemma3_text"},
        {"model_type": "qwen3_moe", "num_experts": 4, "mlp_only_layers": [1], "decoder_sparse_step": 2, **MOE},
        {"model_type": "deepseek_v3", "attention_bias": True, **LATENT},
        {"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None},
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", **NEMOTRON},
        {"model_type": "falcon", "bias": True, "new_decoder_architecture": True, "num_kv_heads": 2},
        {"model_type": "falcon", "parallel_attn": False, "multi_query": False, "alibi": True},
        {"model_type": "gpt_neox", "attention_bias": False, "num_key_value_heads": 4},
        {"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
        {"model_type": "opt", "ffn_dim": 96, "tie_word_embeddings": False},
        {"model_type": "gpt2", "n_inner": 40, "n_positions": 64, "tie_word_embeddings": False},
    ],
    ids=lambda changes: f"{changes['model_type']}-{len(changes)}",
)
def test_switches_of_a_family(changes):
    config = {**TINY, **changes}
    assert parameter_shapes(ModelSpec.from_config(config)) == their_shapes(config)


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) - NOT_IN_TRANSFORMERS))
def test_class_defaults(model_type):
    theirs = {field.name: field.default for field in dataclasses.fields(transformers.CONFIG_MAPPING[model_type])}
    family = FAMILIES[model_type]
    if model_type not in ("falcon", "deepseek_v3"):  # Falcon's switches; a latent cache has no KV heads
        assert family.kv_heads_default == theirs.get("num_key_value_heads")
    head_dim = theirs.get("head_dim")
    assert family.head_dim_default == (head_dim if isinstance(head_dim, int) else None)
    if not model_type.startswith("qwen3_vl"):  # there the outer config decides
        assert family.tied == theirs["tie_word_embeddings"]
    for ours, name in ((family.vocab_size, "vocab_size"), (family.max_position, "max_position_embeddings")):
        assert ours is None or ours == theirs[name]


WINDOWED = ["ministral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma4_text", "olmo3", "cohere2", "gpt_oss",
            "llama4_text", "qwen3_next", "qwen3_5_text"]  # fmt: skip
KINDS = {
    "full_attention": "full", "sliding_attention": "swa", "chunked_attention": "chunk", "linear_attention": "state",
}  # fmt: skip
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip


@pytest.mark.parametrize("switch", [True, False])
@pytest.mark.parametrize("model_type", WINDOWED)
def test_implicit_layer_patterns(model_type, switch):
    config = {
        **TINY, **DELTA, "model_type": model_type, "num_hidden_layers": 13, "sliding_window": 16,
        "use_sliding_window": switch, "max_window_layers": 5, "num_kv_shared_layers": 0,
    }  # fmt: skip
    theirs = type(transformers.AutoConfig.for_model(model_type)).from_dict(config).layer_types
    assert [layer.kind for layer in ModelSpec.from_config(config).layers] == [KINDS[kind] for kind in theirs]
