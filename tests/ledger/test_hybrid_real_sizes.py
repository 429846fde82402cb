"""Public models of the hybrid families at their real size: published totals, and what a sequence of them keeps."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.kv_cache import kv_bytes_per_token, kv_bytes_per_token_all_layers, kv_report
from ledger.model_spec import ModelSpec
from ledger.weights import active_parameter_count, parameter_count, parameter_shapes
from tests.ledger.test_hybrid_families import their_shapes

_LATENT = {
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "num_attention_heads": 64,
}  # fmt: skip
_LFM = {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3}
_MAMBA = {"model_type": "mamba", "vocab_size": 50280, "state_size": 16, "conv_kernel": 4}
REAL: dict[str, dict[str, Any]] = {
    "DeepSeek-V3.2": {
        **_LATENT, "model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432,
        "num_hidden_layers": 61, "num_attention_heads": 128, "index_head_dim": 128,
    },
    "LongCat-Flash": {
        **_LATENT, "model_type": "longcat_flash", "hidden_size": 6144, "ffn_hidden_size": 12288, "num_layers": 28,
        "num_attention_heads": 64, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
        "moe_topk": 12, "q_lora_rank": 1536, "vocab_size": 131072,
    },
    "Kimi-Linear-48B-A3B": {
        **_LATENT, "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216,
        "moe_intermediate_size": 1024, "num_hidden_layers": 27, "num_attention_heads": 32, "q_lora_rank": None,
        "head_dim": 72, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
        "first_k_dense_replace": 1, "model_max_length": 1048576,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
            "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
            "short_conv_kernel_size": 4,
        },
    },
    "Qwen3-Next-80B-A3B": {
        "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    },
    "MiniMax-Text-01": {
        "model_type": "minimax", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32,
        "num_experts_per_tok": 2, "vocab_size": 200064,
        "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
    },
    "Granite-4.0-H-Small": {
        "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10,
        "shared_intermediate_size": 1536, "mamba_n_heads": 128, "mamba_d_state": 128, "vocab_size": 100352,
        "tie_word_embeddings": True,
        "layer_types": ["attention" if index in (5, 15, 25, 35) else "mamba" for index in range(40)],
    },
    "falcon-mamba-7b": {
        "model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64,
        "expand": 16, "vocab_size": 65024, "tie_word_embeddings": False,
    },
    "mamba-130m": {**_MAMBA, "hidden_size": 768, "num_hidden_layers": 24},
    "mamba-2.8b": {**_MAMBA, "hidden_size": 2560, "num_hidden_layers": 64},
    "Mamba-Codestral-7B": {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
    },
    "recurrentgemma-2b": {
        "model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15360, "num_hidden_layers": 26,
        "num_attention_heads": 10, "num_key_value_heads": 1,
    },
    "LFM2-350M": {
        **_LFM, "model_type": "lfm2", "hidden_size": 1024, "block_ff_dim": 6656, "num_attention_heads": 16,
        "num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
    "LFM2-1.2B": {
        **_LFM, "model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "num_hidden_layers": 16,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
    "LFM2-8B-A1B": {
        **_LFM, "model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 24,
        "layer_types": ["full_attention" if index in (2, 6, 10, 14, 18, 21) else "conv" for index in range(24)],
    },
    "Nemotron-Nano-9B-v2": {
        "model_type": "nemotron_h", "hidden_size": 4480, "intermediate_size": 15680, "num_attention_heads": 40,
        "num_key_value_heads": 8, "mamba_num_heads": 128, "mamba_head_dim": 80,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    },
    "Zamba2-2.7B": {
        "model_type": "zamba2", "hidden_size": 2560, "num_hidden_layers": 54, "num_attention_heads": 32,
        "n_mamba_heads": 80, "num_mem_blocks": 2,
    },
}  # fmt: skip
# The totals of the published checkpoints, prediction layers left out.
TOTALS = {
    "Qwen3-Next-80B-A3B": 79_674_391_296, "MiniMax-Text-01": 456_089_655_296, "falcon-mamba-7b": 7_272_665_088,
    "mamba-130m": 129_135_360, "mamba-2.8b": 2_768_345_600, "Mamba-Codestral-7B": 7_285_403_648,
    "recurrentgemma-2b": 2_682_862_080, "LFM2-350M": 354_483_968, "LFM2-1.2B": 1_170_340_608,
    "LFM2-8B-A1B": 8_339_929_856, "Nemotron-Nano-9B-v2": 8_888_227_328,
}  # fmt: skip
# Published in words: "671B plus the indexers", "560B", "48B-A3B", "32B, 9B active".
ROUNDED = {
    "DeepSeek-V3.2": (672, 38), "LongCat-Flash": (561, 32), "Kimi-Linear-48B-A3B": (49, 3),
    "Granite-4.0-H-Small": (32, 9), "Qwen3-Next-80B-A3B": (80, 4),
}  # fmt: skip


def spec_of(name: str) -> ModelSpec:
    return ModelSpec.from_config(REAL[name], name)


@pytest.mark.parametrize("name", [name for name in REAL if name != "LongCat-Flash"])
def test_parameters_are_those_of_transformers(name):
    assert parameter_shapes(spec_of(name)) == their_shapes(REAL[name])


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_the_published_ones(name):
    assert parameter_count(spec_of(name)) == TOTALS[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_totals_and_active_parameters_round_to_the_published_ones(name):
    spec = spec_of(name)
    assert (round(parameter_count(spec) / 1e9), round(active_parameter_count(spec) / 1e9)) == ROUNDED[name]


def test_index_keys_come_on_top_of_the_latent_and_are_not_split():
    spec = spec_of("DeepSeek-V3.2")
    assert kv_bytes_per_token(spec) == 61 * (512 + 64 + 128) * 2 == 85_888
    assert kv_report(spec, 4096, tp=8)["kv_bytes_per_sequence"] == 85_888 * 4096
    assert [(row.what, row.width) for row in spec.layers[0].rows] == [("latent", 576), ("index key", 128)]


def test_longcat_keeps_two_latents_a_layer():
    spec = spec_of("LongCat-Flash")
    assert (spec.num_layers, kv_bytes_per_token(spec)) == (28, 28 * 2 * 576 * 2)


def test_kimi_linear_keeps_seven_latents_and_twenty_states():
    spec = spec_of("Kimi-Linear-48B-A3B")
    report = kv_report(spec, 131_072)
    assert report["kv_bytes_per_sequence"] == 7 * 576 * 2 * 131_072
    assert report["state_bytes_per_sequence"] == 20 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2)


def test_attention_beside_mamba_is_one_layer_with_both():
    spec = ModelSpec.from_config({
        "model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 44,
        "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24,
        "mamba_d_state": 256, "mamba_n_groups": 1, "vocab_size": 130048,
    })  # fmt: skip
    (layer,) = set(spec.layers)
    assert (layer.kind, layer.kv_elements, layer.state_elements) == ("full", 2 * 2 * 128, 3072 * 256)
    report = kv_report(spec, 4096, tp=4)
    assert report["kv_bytes_per_token"] == 44 * 2 * 128 * 2  # one KV head, on every rank
    assert report["state_bytes_per_sequence"] == 44 * (3072 * 256 + 3 * (3072 + 512)) * 2 // 4


def test_zamba2_shares_weights_but_not_keys_and_values():
    spec = spec_of("Zamba2-2.7B")
    assert sum(layer.keeps_kv for layer in spec.layers) == 9
    assert kv_bytes_per_token(spec) == 9 * 2 * 32 * 160 * 2  # heads twice as wide as hidden / heads
    assert sum(".shared_transformer.self_attn.q_proj" in name for name in parameter_shapes(spec)) == 2


def test_compressed_layers_grow_by_a_share_of_an_entry_a_token():
    spec = ModelSpec.from_config({
        "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 64,
        "compress_ratios": [0, 4, 128, 4], "index_head_dim": 128,
    })  # fmt: skip
    assert [layer.kind for layer in spec.layers] == ["swa", "csa", "hca", "csa"]
    assert kv_bytes_per_token(spec) == 2 * (2 * (512 + 128) // 4 + 512 // 128)
    assert kv_bytes_per_token_all_layers(spec) == kv_bytes_per_token(spec) + 4 * 512 * 2
    for length in (100, 130, 4096):
        near, sparse, heavy = min(length, 128) * 512, length // 4 * 640, length // 128 * 512
        assert kv_report(spec, length)["kv_bytes_per_sequence"] == 2 * (4 * near + 2 * sparse + heavy)


def test_wider_windows_of_mimo_keep_their_own_heads():
    spec = ModelSpec.from_config({
        "model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 6,
        "num_attention_heads": 64, "num_key_value_heads": 4, "swa_num_key_value_heads": 8, "sliding_window_size": 128,
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0], "moe_layer_freq": [0, 1, 1, 1, 1, 1],
    })  # fmt: skip
    assert kv_bytes_per_token(spec) == 2 * 4 * (192 + 128) * 2
    assert kv_report(spec, 1000)["kv_bytes_per_sequence"] == (2 * 4 * 1000 + 4 * 8 * 128) * 320 * 2


def test_windows_and_states_of_recurrentgemma_do_not_grow():
    spec = spec_of("recurrentgemma-2b")
    assert kv_bytes_per_token(spec) == 0
    assert kv_report(spec, 4096)["kv_bytes_per_sequence"] == kv_report(spec, 9999)["kv_bytes_per_sequence"]
    assert kv_report(spec, 9999)["state_bytes_per_sequence"] == 18 * (2560 * 4 + 2560 * 3 * 2)


def test_a_model_without_attention_keeps_nothing_a_token():
    report = kv_report(spec_of("falcon-mamba-7b"), 32_768, 2)
    assert (report["kv_bytes_per_token_all_layers"], report["kv_bytes_total"]) == (0, 0)
    assert report["state_bytes_per_sequence"] == 64 * 8192 * (16 + 3) * 2


def test_state_defaults_to_float32_where_the_class_says_so():
    spec = spec_of("Nemotron-Nano-9B-v2")
    assert {layer.state_element_bytes for layer in spec.layers if layer.kind == "state"} == {4}
    half = ModelSpec.from_config({**REAL["Nemotron-Nano-9B-v2"], "mamba_ssm_cache_dtype": "bfloat16"})
    assert {layer.state_element_bytes for layer in half.layers} == {2}
