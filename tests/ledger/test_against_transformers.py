"""Every parameter's name and shape against transformers' own models, built on the meta device."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ledger.class_defaults import class_defaults
from ledger.families import FAMILIES
from ledger.model_spec import ModelSpec
from ledger.tensors import TABLES
from ledger.weights import parameter_shapes
from tests.ledger.dense_configs import DELTA, TINY, tiny
from tests.ledger.hybrid_configs import HYBRID_CONFIGS

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

NOT_IN_TRANSFORMERS = {
    "baichuan", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "mimo", "minicpm", "minimax_m1",
    "minimax_text_01", "qwen", "youtu_llm",
}  # fmt: skip
NOT_TEXT = ("visual", "vision", "multi_modal_projector", "embed_tokens_extend")


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


KNOWN = sorted(set(FAMILIES) & set(transformers.CONFIG_MAPPING))
SWITCHES = [
    "attention_bias", "mlp_bias", "use_bias", "attention_out_bias", "use_qkv_bias", "qkv_bias", "lm_head_bias",
    "use_qk_norm", "qk_layernorm", "use_post_norm", "use_parallel_residual", "multi_query", "tie_word_embeddings",
]  # fmt: skip
# Checked with configs of their own, or as part of a multimodal model.
CHECKED_ELSEWHERE = {*HYBRID_CONFIGS, "mllama_text_model"}
REFUSED_BY_THE_CLASS = {
    ("dbrx", "tie_word_embeddings"), ("internlm3", "attention_bias"), ("internlm3", "mlp_bias"),
}  # fmt: skip


def text_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Like their_shapes; a text model that has no causal class of its own is built without a head."""
    theirs = type(transformers.AutoConfig.for_model(config["model_type"])).from_dict(config)
    if type(theirs) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return their_shapes(config)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(theirs)
    return {f"model.{name}": tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("model_type", [name for name in KNOWN if name in TABLES and name not in CHECKED_ELSEWHERE])
def test_every_switch_of_every_family(model_type):
    config = tiny(model_type)
    fields = {field.name for field in dataclasses.fields(transformers.CONFIG_MAPPING[model_type])}
    headless = type(transformers.AutoConfig.for_model(model_type)) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    for changes in [{}, *({name: on} for name in SWITCHES if name in fields for on in (True, False))]:
        if headless:
            changes = {**changes, "tie_word_embeddings": True}
        changed = {**config, **changes}
        if (model_type, *changes) in REFUSED_BY_THE_CLASS:
            continue
        assert parameter_shapes(ModelSpec.from_config(changed)) == text_shapes(changed), changes


@pytest.mark.parametrize("model_type", KNOWN)
def test_class_defaults(model_type):
    theirs = {field.name: field.default for field in dataclasses.fields(transformers.CONFIG_MAPPING[model_type])}
    ours = class_defaults()[model_type]
    assert ours == {name: theirs[name] for name in ours}
    for name in ("num_key_value_heads", "head_dim", "vocab_size", "tie_word_embeddings"):
        if isinstance(theirs.get(name), int) and not (name == "head_dim" and "kv_lora_rank" in theirs):
            assert name in ours


WINDOWED = ["ministral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma4_text", "olmo3", "cohere2", "gpt_oss",
            "llama4_text", "qwen3_next", "qwen3_5_text"]  # fmt: skip
KINDS = {
    "full_attention": "full", "sliding_attention": "swa", "chunked_attention": "chunk", "linear_attention": "state",
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
