"""Rotary positions: the frequencies and the attention factor of each kind of scaling a config can ask for.

Owns reading `rope_scaling` and `rope_parameters` (the transformers 5 name) and the formulas, which restate those of
transformers' modeling_rope_utils. A kind that would be computed wrongly is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ledger.errors import InputError

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "divided")
WHERE = "model (rope_scaling.{} in config.json)"


@dataclass(frozen=True)
class RopeSpec:
    """Base, kind of scaling and its constants.

    "dynamic" changes frequencies only beyond max_position_embeddings, where this engine never goes: up to there it is
    "default". "divided" divides each of the head_dim / 2 frequencies by its own number (`divisors`), as GGUF files do.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original_max_position: float = 0
    attention_factor: float = 1.0  # multiplies cos and sin, so scores by its square
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    divisors: tuple[float, ...] = ()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RopeSpec:
        """Read a config.json; InputError naming the field on a kind or value that can't be computed."""
        params = _parameters(config)
        kind = params.get("rope_type", params.get("type", "default"))
        if kind not in KINDS:
            raise InputError(WHERE.format("rope_type"), kind, ", ".join(KINDS[:-1]))
        partial = params.get("partial_rotary_factor", config.get("partial_rotary_factor"))
        if partial not in (None, 1, 1.0):
            raise InputError("model (partial_rotary_factor in config.json)", partial, "1: positions on whole heads")
        theta = _number({"rope_theta": config.get("rope_theta"), **params}, "rope_theta", 10_000.0)
        if kind in ("default", "dynamic"):
            return cls(theta, kind)
        if kind == "divided":
            return cls(theta, kind, divisors=tuple(float(number) for number in params["divisors"]))
        factor = _number(params, "factor")
        if kind == "linear":
            return cls(theta, kind, factor)
        original = _number(
            {**params, "original_max_position_embeddings": _original_max_position(config, params)},
            "original_max_position_embeddings",
        )
        if kind == "llama3":
            low, high = _number(params, "low_freq_factor"), _number(params, "high_freq_factor")
            if high <= low:
                raise InputError(WHERE.format("high_freq_factor"), high, f"a number above low_freq_factor={low:g}")
            return cls(theta, kind, factor, original, low_freq_factor=low, high_freq_factor=high)
        return cls(
            theta,
            kind,
            factor,
            original,
            attention_factor=_yarn_attention_factor(params, factor),
            beta_fast=_number(params, "beta_fast", 32.0),
            beta_slow=_number(params, "beta_slow", 1.0),
            truncate=bool(params.get("truncate", True)),
        )


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """Radians a position, float32 [head_dim / 2], for every pair of a head's elements."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, head_dim)
    if rope.kind == "divided":
        return plain / torch.tensor(rope.divisors, dtype=torch.float32)
    return plain


def cos_and_sin(
    positions: torch.Tensor, inv_freq: torch.Tensor, attention_factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [num_tokens, head_dim], of positions [num_tokens]; the halves repeat (rotate-half)."""
    angles = positions[:, None].float() * inv_freq
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos() * attention_factor, angles.sin() * attention_factor


def _llama3(rope: RopeSpec, plain: torch.Tensor) -> torch.Tensor:
    """Llama 3.1: long wavelengths divided by the factor, short ones left, between them a linear blend."""
    turns = rope.original_max_position / (2 * math.pi / plain)  # turns over the original context
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth = smooth.clamp(0, 1)
    return (1 - smooth) * plain / rope.factor + smooth * plain


def _yarn(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """YaRN (arXiv 2309.00071, section 3.2): pairs that turn often keep their frequency, slow ones are divided."""

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(rope.original_max_position / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_that_turns(rope.beta_fast), pair_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # the ramp's width may not be zero; the reference's number
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    powers = rope.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    kept = 1 - ramp
    return 1.0 / (rope.factor * powers) * (1 - kept) + 1.0 / powers * kept


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """YaRN's recommended factor on cos and sin: 0.1 mscale ln(factor) + 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _yarn_attention_factor(params: Mapping[str, Any], factor: float) -> float:
    if params.get("attention_factor") is not None:
        return _number(params, "attention_factor")
    if params.get("mscale") and params.get("mscale_all_dim"):
        over, under = (yarn_magnitude(factor, _number(params, name)) for name in ("mscale", "mscale_all_dim"))
        return over / under
    return yarn_magnitude(factor)


def _parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one object of rope settings; InputError when there are two that differ, or one a layer type."""
    old, new = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    for name, value in (("rope_scaling", old), ("rope_parameters", new)):
        if not isinstance(value, Mapping) or any(isinstance(item, Mapping) for item in value.values()):
            raise InputError(f"model ({name} in config.json)", value, "one object of numbers for all layers")
    if old and new and old != new:
        raise InputError("model (rope_scaling in config.json)", old, f"the same as rope_parameters, {new}, or only one")
    return old or new


def _original_max_position(config: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
    """A value beside the object wins over one in it, as in transformers; without both, the model's own length."""
    for place in (config, params):
        if place.get("original_max_position_embeddings") is not None:
            return place["original_max_position_embeddings"]
    return config.get("max_position_embeddings")


def _number(params: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = params.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(WHERE.format(key), value, "a number above 0")
    return float(value)
