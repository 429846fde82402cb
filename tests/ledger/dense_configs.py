"""Tiny configs of the families with plain attention, and of multimodal models around a text model."""

from __future__ import annotations

from typing import Any

TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "moe_k": 2, "moe_topk": 2,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "n_shared_experts": 2,
}  # fmt: skip
OF_FAMILY: dict[str, dict[str, Any]] = {
    "bloom": {"n_layer": 4, "n_head": 4, "num_key_value_heads": None},
    "codegen": {"n_layer": 4, "n_head": 4, "n_embd": 64, "n_positions": 64, "num_key_value_heads": None},
    "cohere2_moe": {"head_dim": 16, "first_k_dense_replace": 2, "prefix_dense_intermediate_size": 80,
                    "num_shared_experts": 1},
    "dbrx": {"n_layers": 4, "n_heads": 4, "d_model": 64, "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4},
             "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2}},
    "ernie4_5_moe": {"moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_num_shared_experts": 2},
    "exaone4": {"sliding_window": 16, "sliding_window_pattern": 2},
    "falcon": {"num_kv_heads": 2},
    "gemma3n_text": {"intermediate_size": [96] * 4, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8,
                     "vocab_size_per_layer_input": 30, "laurel_rank": 8,
                     "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gpt2": {"n_layer": 4, "n_head": 4, "n_embd": 64, "n_positions": 64},
    "gpt_bigcode": {"n_layer": 4, "n_head": 4, "n_embd": 64, "n_positions": 64},
    "gpt_neo": {"num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]]},
    "gptj": {"n_layer": 4, "n_head": 4, "n_embd": 64, "n_positions": 64, "rotary_dim": 8},
    "helium": {"head_dim": 16},
    "granitemoeshared": {"shared_intermediate_size": 48},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "jetmoe": {"kv_channels": 16, "num_attention_heads": 4},
    "ministral": {"head_dim": 16},
    "mllama_text_model": {"cross_attention_layers": [1, 3]},
    "mpt": {"n_layers": 4, "n_heads": 4, "d_model": 64, "num_key_value_heads": None},
    "nemotron": {"head_dim": 16},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 32},
    "persimmon": {"num_key_value_heads": None},
}  # fmt: skip
TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 200, "max_position_embeddings": 64, "pad_token_id": 0,
    "cross_attention_layers": [1, 3], "num_experts": 4, "n_routed_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 60, "intermediate_size_mlp": 80,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
}  # fmt: skip
VISION = {"num_hidden_layers": 2, "depth": 2, "hidden_size": 48, "num_attention_heads": 4, "num_heads": 4}
# transformers has its own type of text rope in these, or keys that the text class refuses.
NO_ROPE = {"gemma3", "gemma4", "llama4", "mllama"}


def tiny(model_type: str, **changes: Any) -> dict[str, Any]:
    return {
        **TINY,
        **DELTA,
        **EXPERTS,
        "pad_token_id": 0,
        **OF_FAMILY.get(model_type, {}),
        "model_type": model_type,
        **changes,
    }


def nested(kind: str, vision: dict[str, Any] | None, **outer: Any) -> dict[str, Any]:
    text = {key: value for key, value in TEXT.items() if kind not in NO_ROPE or not key.startswith("rope")}
    return {"model_type": kind, "text_config": text, **({} if vision is None else {"vision_config": vision}), **outer}
