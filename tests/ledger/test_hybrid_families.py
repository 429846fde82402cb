"""Latent, state-space and linear-attention families: parameters, layer kinds and caches of transformers' models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.errors import InputError
from ledger.formats import element_format
from ledger.kv_cache import sequence_bytes
from ledger.layers import LayerSpec
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes
from tests.ledger.hybrid_configs import HYBRID_CONFIGS

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def their_config(config: dict[str, Any]) -> Any:
    return type(transformers.AutoConfig.for_model(config["model_type"])).from_dict(config)


def their_model(config: dict[str, Any], device: str = "cpu") -> Any:
    theirs = their_config(config)
    text_only = type(theirs) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    auto = transformers.AutoModelForCausalLM if text_only else transformers.AutoModelForImageTextToText
    with torch.device(device):
        return auto.from_config(theirs, dtype=torch.float32).eval()


def their_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    model = their_model(config, "meta")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


SWITCHES: dict[str, list[dict[str, Any]]] = {
    "deepseek_v3": [{"q_lora_rank": None}, {"attention_bias": True}],
    "deepseek_v32": [{"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]}],
    "glm_moe_dsa": [{"indexer_types": ["shared", "full", "full", "shared"]}, {"index_topk_pattern": "FFSF"}],
    "minimax_m3_vl_text": [{"layer_types": ["minimax_m3_sparse"] * 4}, {"mlp_layer_types": ["sparse", "dense"] * 2}],
    "axk1": [{"first_k_dense_replace": 2}],
    "minicpm3": [{"q_lora_rank": None}, {"v_head_dim": None}, {"tie_word_embeddings": False}],
    "kimi_linear": [{"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, {"first_k_dense_replace": 2}],
    "deepseek_v4": [{"compress_ratios": None}, {"compress_rate_csa": 8, "compress_rate_hca": 64}, {"hc_mult": 3}],
    "qwen3_next": [{"decoder_sparse_step": 2}, {"attention_bias": True}, {"full_attention_interval": 2}],
    "olmo_hybrid": [dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads"))],
    "jamba": [{"num_experts": 1, "mamba_dt_rank": 5}, {"mamba_conv_bias": False, "mamba_proj_bias": True}],
    "zamba": [{"mamba_proj_bias": True}],
    "zamba2": [{"use_shared_attention_adapter": False, "num_mem_blocks": 1}, {"add_bias_linear": True}],
    "granitemoehybrid": [{"num_local_experts": 0}, {"layer_types": ["attention"] * 4}, {"attention_bias": True}],
    "bamba": [{"mamba_proj_bias": True, "mamba_conv_bias": False}, {"attention_bias": True, "mlp_bias": True}],
    "nemotron_h": [
        {"moe_latent_size": 24}, {"use_bias": True, "mlp_bias": True, "attention_bias": True},
        {"hybrid_override_pattern": "M-M*-E"}, {"layers_block_type": ["mamba", "attention", "moe", "mlp"]},
    ],
    "falcon_h1": [{"mamba_rms_norm": True}, {"projectors_bias": True}, {"mamba_d_ssm": None}],
    "mamba": [{"use_bias": True}, {"use_conv_bias": False}, {"time_step_rank": 7}, {"tie_word_embeddings": False}],
    "recurrent_gemma": [{"attention_bias": True}, {"block_types": ["attention", "recurrent"]}],
    "lfm2": [
        {"conv_bias": True}, {"block_auto_adjust_ff_dim": False},
        {"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 10}, {"block_ff_dim": 120},
        {"full_attn_idxs": None}, {"tie_embedding": False},
    ],
    "lfm2_moe": [{"num_dense_layers": 0}],
    "mimo_v2_flash": [{"mlp_layer_types": ["sparse", "dense"] * 2}, {"layer_types": None}, {"attention_bias": True}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [(name, changes) for name in HYBRID_CONFIGS for changes in [{}, *SWITCHES.get(name, [])]],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain",
)
def test_parameters_are_those_of_transformers(model_type, changes):
    config = {**HYBRID_CONFIGS[model_type], **changes}
    if "layers_block_type" in changes and model_type == "nemotron_h":
        del config["hybrid_override_pattern"]
    if "hybrid_override_pattern" in changes:
        config["num_hidden_layers"] = len(changes["hybrid_override_pattern"])
    assert parameter_shapes(ModelSpec.from_config(config)) == their_shapes(config)


def test_zero_experts_hold_no_weights():
    config = {**HYBRID_CONFIGS["longcat_flash"], "zero_expert_num": 3}
    ours, theirs = parameter_shapes(ModelSpec.from_config(config)), their_shapes(config)
    different = {name for name in theirs if ours[name] != theirs[name]}
    # transformers allocates rows for them that no checkpoint has and that its own forward pass never reads
    assert different == {f"model.layers.{index}.mlp.experts.gate_up_proj" for index in (0, 1)}
    assert ours["model.layers.0.mlp.experts.gate_up_proj"] == (4, 64, 64)
    assert ours["model.layers.0.mlp.router.classifier.weight"] == (7, 64)


KINDS = {
    "full_attention": "full", "sliding_attention": "swa", "linear_attention": "state", "conv": "state",
    "hybrid": "full", "mlp": "none", "moe": "none", "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
    "indexed_attention": "mla", "minimax_m3_sparse": "full",
}  # fmt: skip
DERIVED = [
    ("deepseek_v32", {}), ("glm_moe_dsa", {}), ("deepseek_v4", {"compress_ratios": None, "num_hidden_layers": 9}),
    ("kimi_linear", {"linear_attn_config": {}, "num_hidden_layers": 11}),
    ("bailing_hybrid", {"layer_group_size": 6, "num_hidden_layers": 13}), ("qwen3_next", {"num_hidden_layers": 9}),
    ("qwen3_5_moe_text", {"num_hidden_layers": 9}), ("olmo_hybrid", {"num_hidden_layers": 9}),
    ("olmo_hybrid", {"num_hidden_layers": 3}), ("minimax", {"layer_types": None, "num_hidden_layers": 5}),
    ("jamba", {"attn_layer_period": 8, "attn_layer_offset": 4, "num_hidden_layers": 18}),
    ("zamba", {"num_hidden_layers": 23}), ("zamba2", {"layers_block_type": None, "num_hidden_layers": 54}),
    ("granitemoehybrid", {"layer_types": None}), ("bamba", {"attn_layer_indices": None}), ("falcon_h1", {}),
    ("nemotron_h", {}), ("mamba2", {}), ("recurrent_gemma", {"num_hidden_layers": 8}),
    ("lfm2", {"full_attn_idxs": None}), ("lfm2_moe", {}), ("minimax_m3_vl_text", {}),
    ("mimo_v2_flash", {"layer_types": None, "num_hidden_layers": 13}),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "changes"), DERIVED, ids=[name for name, _ in DERIVED])
def test_layer_kinds_are_those_of_transformers(model_type, changes):
    config = {**HYBRID_CONFIGS[model_type], **changes}
    ours = [layer.kind for layer in ModelSpec.from_config(config).layers]
    latent = "kv_lora_rank" in config
    theirs = [KINDS[kind] for kind in their_config(config).layer_types]
    assert ours == ["mla" if latent and kind == "full" else kind for kind in theirs]


def held_by(layer: Any) -> tuple[int, int, int]:
    """(elements of rows, of recurrent state, of convolution state) in one layer of a cache after a forward pass."""
    rows = 0
    for name in ("keys", "values", "indexer_keys", "idx_keys"):
        tensor = getattr(layer, name, None)
        if tensor is not None and not (name == "values" and torch.equal(layer.keys, tensor)):
            rows += tensor.numel()
    for name, tensor in getattr(layer, "compressed_kv", {}).items():
        rows += tensor.numel() if name in ("compressor", "indexer") else 0
    state = sum(t.numel() for t in getattr(layer, "recurrent_states", {}).values() if t is not None)
    # transformers keeps as many inputs as the kernel is long; the newest is the token at hand
    conv = sum(t.numel() // t.shape[-1] * (t.shape[-1] - 1) for t in getattr(layer, "conv_states", {}).values())
    return rows, state, conv


def elements_kept(layer: LayerSpec, seq_len: int) -> int:
    """Elements of a layer's cache by the product's own sum of bytes, at one byte an element."""
    return sequence_bytes(((layer, 1),), seq_len, element_format("fp8"))


def expected(layer: LayerSpec, seq_len: int) -> tuple[int, int, int]:
    """The same by the ledger. Between two steps transformers keeps one token less of a window than it reads."""
    if layer.window is not None:
        layer = replace(layer, window=layer.window - 1)
    return elements_kept(layer, seq_len), layer.state_elements, layer.conv_elements


CACHED = sorted(set(HYBRID_CONFIGS) - {"minimax", "recurrent_gemma", "longcat_flash"})


@pytest.mark.parametrize("model_type", CACHED)
def test_a_real_cache_holds_what_the_ledger_says(model_type):
    config = HYBRID_CONFIGS[model_type]
    model = their_model(config)
    spec = ModelSpec.from_config(config)
    for seq_len in (5, 261 if model_type == "deepseek_v4" else 24):
        with torch.no_grad():
            output = model(torch.randint(3, 40, (1, seq_len)), use_cache=True)
        cache = output.past_key_values
        found = [held_by(layer) for layer in cache.layers]
        assert found == [expected(layer, seq_len) for layer in spec.layers], seq_len


def test_a_real_cache_of_lightning_attention():
    config = HYBRID_CONFIGS["minimax"]
    model = their_model(config)
    with torch.no_grad():
        cache = model(torch.randint(3, 40, (1, 24)), use_cache=True).past_key_values
    for index, layer in enumerate(ModelSpec.from_config(config).layers):
        if layer.kind == "state":
            assert cache.linear_cache[index].numel() == layer.state_elements
        else:
            assert held_by(cache.layers[index])[0] == elements_kept(layer, 24)


def test_two_attentions_a_layer_have_two_latents():
    config = HYBRID_CONFIGS["longcat_flash"]
    model = their_model(config)
    with torch.no_grad():
        cache = model(torch.randint(3, 40, (1, 24)), use_cache=True).past_key_values
    found = [held_by(layer)[0] for layer in cache.layers]
    layers = ModelSpec.from_config(config).layers
    assert (len(layers), len(found)) == (2, 4)
    assert [found[0] + found[1], found[2] + found[3]] == [elements_kept(layer, 24) for layer in layers]


def test_gated_recurrences_keep_one_float32_vector():
    config = HYBRID_CONFIGS["recurrent_gemma"]
    model = their_model(config)
    with torch.no_grad():
        model(torch.randint(3, 40, (1, 24)), use_cache=True)
    first, _, attention, _ = ModelSpec.from_config(config).layers
    block = model.model.layers[0].temporal_block
    assert block.rg_lru.recurrent_states.numel() == first.state_elements
    assert block.rg_lru.recurrent_states.element_size() == first.state_element_bytes
    assert block.conv1d_state.numel() == first.conv_elements
    assert (attention.kind, attention.kv_heads, attention.window) == ("swa", 1, 16)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("deepseek_v32", {"index_head_dim": None}, "index_head_dim"),
    ("glm_moe_dsa", {"indexer_types": ["full", "half", "full", "full"]}, "indexer_types"),
    ("glm_moe_dsa", {"index_topk_pattern": "FS"}, "index_topk_pattern"),
    ("deepseek_v4", {"compress_ratios": [0, 4, 16, 4]}, "compress_ratios"),
    ("deepseek_v4", {"compress_ratios": [0, 4]}, "compress_ratios"),
    ("kimi_linear", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("bamba", {"mamba_n_heads": 7}, "mamba_n_heads"),
    ("nemotron_h", {"hybrid_override_pattern": "MX*E"}, "hybrid_override_pattern"),
    ("nemotron_h", {"mamba_ssm_cache_dtype": "int3"}, "mamba_ssm_cache_dtype"),
    ("recurrent_gemma", {"block_types": ["recurrent", "convolution"]}, "block_types"),
    ("minimax", {"attn_type_list": [0, 1]}, "attn_type_list"),
    ("lfm2", {"layer_types": ["conv", "mamba", "conv", "conv"]}, "layer_types"),
    ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
]


@pytest.mark.parametrize(("model_type", "changes", "field"), WRONG)
def test_a_bad_value_is_one_line_that_names_the_field(model_type, changes, field):
    with pytest.raises(InputError, match=field) as caught:
        ModelSpec.from_config({**HYBRID_CONFIGS[model_type], **changes})
    assert len(str(caught.value).splitlines()) == 1
