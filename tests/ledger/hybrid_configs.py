"""Tiny configs of the latent, state-space and linear-attention families, with every size different where it can be."""

from __future__ import annotations

from typing import Any

_TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
_LATENT = {
    **_TINY, **_EXPERTS, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 20, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
_INDEX = {"index_n_heads": 4, "index_head_dim": 12, "index_topk": 8}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_expand": 2}
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
_SHARED = {**_EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24, "head_dim": 16}

HYBRID_CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": {**_LATENT, **_INDEX},
    "glm_moe_dsa": {**_LATENT, **_INDEX, "index_topk_freq": 2, "index_skip_topk_offset": 1},
    "glm4_moe_lite": _LATENT,
    "minicpm3": _LATENT,
    "youtu": _LATENT,
    "sarvam_mla": _LATENT,
    "axk1": _LATENT,
    "longcat_flash": {
        **{key: value for key, value in _LATENT.items() if key not in ("num_hidden_layers", "intermediate_size")},
        "num_layers": 2, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 32, "moe_topk": 2, "zero_expert_num": 0,
        "head_dim": 8,
    },
    "kimi_linear": {
        **{key: value for key, value in _LATENT.items() if key != "n_routed_experts"}, "q_lora_rank": None,
        "num_experts": 4,
        "linear_attn_config": {
            "head_dim": 8, "num_heads": 6, "short_conv_kernel_size": 4, "full_attn_layers": [2, 4],
            "kda_layers": [1, 3],
        },
    },
    "bailing_hybrid": {
        **{key: value for key, value in _LATENT.items() if key != "n_routed_experts"}, "num_experts": 4,
        "layer_group_size": 2, "head_dim": 8,
    },
    "deepseek_v4": {
        **{key: value for key, value in _TINY.items() if key != "intermediate_size"}, **_EXPERTS, **_INDEX,
        "num_key_value_heads": 1, "head_dim": 16, "n_routed_experts": 4, "q_lora_rank": 24, "o_groups": 2,
        "o_lora_rank": 12, "sliding_window": 8, "compress_ratios": [0, 4, 128, 4, 0], "qk_rope_head_dim": 8,
        "max_position_embeddings": 512,
    },
    "qwen3_next": {**_TINY, **_DELTA, **_SHARED, "mlp_only_layers": [1]},
    "qwen3_5_moe_text": {**_TINY, **_DELTA, **_SHARED},
    "olmo_hybrid": {**_TINY, **_DELTA},
    "minimax": {
        **_TINY, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 12,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "jamba": {
        **_TINY, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 12,
        "mamba_dt_rank": "auto",
    },
    "zamba": {**_TINY, "num_hidden_layers": 10, "n_mamba_heads": 2, "num_key_value_heads": 4, "mamba_d_state": 12},
    "zamba2": {
        **_TINY, "num_hidden_layers": 6, "num_mem_blocks": 2, "n_mamba_heads": 8, "mamba_d_state": 16,
        "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "hybrid", "hybrid"], "mamba_ngroups": 2,
        "adapter_rank": 6, "num_key_value_heads": 4, "use_shared_attention_adapter": True,
    },
    "granitemoehybrid": {
        **_TINY, **_MAMBA2, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48,
        "layer_types": ["mamba", "attention"] * 2,
    },
    "bamba": {**_TINY, **_MAMBA2, "attn_layer_indices": [1, 3]},
    "nemotron_h": {
        **_TINY, **_EXPERTS, "hybrid_override_pattern": "M-*E", "mamba_num_heads": 4, "mamba_head_dim": 12,
        "ssm_state_size": 8, "n_groups": 2, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 48,
        "head_dim": 20,
    },
    "falcon_h1": {**_TINY, **_MAMBA2, "mamba_d_ssm": 96},
    "falcon_mamba": {**_TINY, "state_size": 8},
    "mamba": {**_TINY, "state_size": 8},
    "mamba2": {**_TINY, "num_heads": 8, "head_dim": 16, "state_size": 12, "n_groups": 2},
    "recurrent_gemma": {**_TINY, "attention_window_size": 16, "lru_width": 80, "num_key_value_heads": 1},
    "lfm2": {**_TINY, "full_attn_idxs": [1, 3]},
    "lfm2_moe": {
        **_TINY, **_EXPERTS, "layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1, "num_experts": 4,
    },
    "mimo_v2_flash": {
        **_TINY, **_EXPERTS, "head_dim": 24, "v_head_dim": 16, "n_routed_experts": 4, "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
    },
}  # fmt: skip
HYBRID_CONFIGS = {name: {**config, "model_type": name} for name, config in HYBRID_CONFIGS.items()}
