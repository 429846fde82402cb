"""DecoderSpec: what the decoder needs to compute, read from a Hugging Face config.json.

ledger.ModelSpec counts bytes; this one holds what changes the numbers (epsilon, rope base). A feature of a config
that the decoder would have to ignore is refused: a wrong text is worse than no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.errors import InputError

SUPPORTED_TYPES = ("llama",)


@dataclass(frozen=True)
class DecoderSpec:
    """Sizes and constants of a Llama-family decoder."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rms_norm_eps: float
    rope_theta: float
    tie_embeddings: bool
    eos_token_ids: tuple[int, ...]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DecoderSpec:
        """Read config.json; InputError on a family or feature that the decoder does not compute."""
        _refuse_unsupported(config)
        heads = int(config["num_attention_heads"])
        eos = config.get("eos_token_id")
        rope = config.get("rope_parameters") or {}  # transformers 5 writes rope_theta here
        return cls(
            hidden_size=int(config["hidden_size"]),
            intermediate_size=int(config["intermediate_size"]),
            num_layers=int(config["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            vocab_size=int(config["vocab_size"]),
            max_position=int(config.get("max_position_embeddings", 2048)),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            tie_embeddings=bool(config.get("tie_word_embeddings", False)),
            eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        )


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_TYPES:
        raise InputError("model (model_type in config.json)", model_type, ", ".join(SUPPORTED_TYPES))
    missing = [
        key
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        if key not in config
    ]
    if missing:
        raise InputError("model (config.json)", f"without {', '.join(missing)}", "a complete config.json")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise InputError("model (rope_scaling in config.json)", kind, "default (no scaling)")
    for flag in ("attention_bias", "mlp_bias"):
        if config.get(flag):
            raise InputError(f"model ({flag} in config.json)", True, "false")
    if config.get("hidden_act", "silu") != "silu":
        raise InputError("model (hidden_act in config.json)", config["hidden_act"], "silu")
