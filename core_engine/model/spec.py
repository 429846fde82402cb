"""DecoderSpec: what the decoder needs to compute, read from a Hugging Face config.json.

ledger.ModelSpec counts bytes and says which layer slides; this one adds what changes the numbers (epsilon, rotary
positions, biases). A feature of a config that the decoder would have to ignore is refused: a wrong text is worse than
no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_engine.model.rope import RopeSpec
from ledger.errors import InputError
from ledger.model_spec import ModelSpec

SUPPORTED_TYPES = ("llama", "mistral", "qwen2", "qwen3")
# max_position_embeddings of the configuration classes, for a config that leaves it out.
MAX_POSITION = {"llama": 2048, "mistral": 131_072, "qwen2": 32_768, "qwen3": 32_768}

# Fields of other architectures under a supported model_type, with the values that mean "not used".
NOT_COMPUTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "num_local_experts": (0, 1),
    "num_experts": (0, 1),
    "n_routed_experts": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "attention_multiplier": (),
    "query_pre_attn_scalar": (),
    "attention_chunk_size": (),
    "no_rope_layers": (),
    "no_rope_layer_interval": (),
    "is_encoder_decoder": (False,),
}


@dataclass(frozen=True)
class DecoderSpec:
    """Sizes and constants of a decoder of the Llama kind. `windows` has one entry a layer, None where it sees all."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rms_norm_eps: float
    rope: RopeSpec
    windows: tuple[int | None, ...]
    tie_embeddings: bool
    eos_token_ids: tuple[int, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DecoderSpec:
        """Read config.json; InputError on a family or feature that the decoder does not compute."""
        _refuse_unsupported(config)
        shape = ModelSpec.from_config(config)
        family = shape.model_type
        if shape.head_dim % 2:
            raise InputError("model (head_dim in config.json)", shape.head_dim, "an even number, for rotary positions")
        if shape.num_heads % shape.num_kv_heads:
            raise InputError(
                "model (num_key_value_heads in config.json)",
                shape.num_kv_heads,
                f"a divisor of the {shape.num_heads} query heads",
            )
        # transformers reads attention_bias only where the family's class has it: Qwen2 has it on q, k, v always.
        has_bias_switch = family in ("llama", "qwen3")
        bias = has_bias_switch and bool(config.get("attention_bias"))
        return cls(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_layers=shape.num_layers,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab_size,
            max_position=shape.max_position or MAX_POSITION[family],
            rms_norm_eps=_epsilon(config),
            rope=RopeSpec.from_config(config),
            windows=tuple(layer.window for layer in shape.layers),
            tie_embeddings=shape.tie_embeddings,
            eos_token_ids=_end_tokens(config),
            qkv_bias=bias or family == "qwen2",
            output_bias=bias,
            mlp_bias=family == "llama" and bool(config.get("mlp_bias")),
            qk_norm=family == "qwen3",
        )


def _epsilon(config: Mapping[str, Any]) -> float:
    value = config.get("rms_norm_eps", 1e-6)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError("model (rms_norm_eps in config.json)", value, "a number from 0 to 1")
    return float(value)


def _end_tokens(config: Mapping[str, Any]) -> tuple[int, ...]:
    eos = config.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in ids):
        raise InputError("model (eos_token_id in config.json)", eos, "a token id, or a list of them")
    return tuple(ids)


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    family = config.get("model_type")
    if family not in SUPPORTED_TYPES:
        raise InputError("model (model_type in config.json)", family, ", ".join(SUPPORTED_TYPES))
    missing = [
        key
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        if config.get(key) is None
    ]
    if missing:
        raise InputError("model (config.json)", f"without {', '.join(missing)}", "a complete config.json")
    for name, neutral in NOT_COMPUTED.items():
        value = config.get(name)
        if value is not None and value not in neutral:
            shown = value if isinstance(value, str | int | float) else type(value).__name__
            accepted = " or ".join(map(str, neutral)) if neutral else "a model without it"
            raise InputError(f"model ({name} in config.json)", shown, accepted)
    if family == "mistral" and config.get("layer_types"):
        # The reference implementation ignores the list and slides in every layer; other engines follow it.
        raise InputError("model (layer_types in config.json)", "a list", "no list for model_type mistral")
