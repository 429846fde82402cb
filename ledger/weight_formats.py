"""Bytes of a model's weights by format: what is quantized, what stays 16-bit, and what one rank holds.

Embedding, head, norms, routers, convolutions and biases stay 16-bit unless a format covers the whole model (GGUF) or
the head is asked for; the rest are linear layers and take the format. "as-stored" follows the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ledger.block_formats import WEIGHT_FORMATS, WeightFormat, gguf_format, weight_format
from ledger.checkpoint import StoredScheme, stored_scheme
from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, rank_share, stage_of_tensor, stages
from ledger.weights import PARTS, active_parameter_count, parameter_shapes, part_of

__all__ = [
    "AS_STORED",
    "WEIGHT_FORMATS",
    "RankWeights",
    "WeightFormat",
    "format_name",
    "rank_weights",
    "stored_weights",
    "tensor_formats",
    "weight_bytes_of",
    "weight_format",
    "weights_report",
    "weights_text",
]  # fmt: skip

AS_STORED = "as-stored"
_SMALL = re.compile(r"\b(?:router|gate|shared_expert_gate)\.|conv1d|A_log|bias$|per_expert_scale|sinks")


@dataclass(frozen=True)
class RankWeights:
    """What the tensor-parallel ranks of one pipeline stage hold each, at most, by part."""

    bytes_by_part: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.bytes_by_part.values())


def stored_weights(spec: ModelSpec) -> str | None:
    """The name of the format that the checkpoint's `quantization_config` says; None for a checkpoint without one."""
    scheme = stored_scheme(spec)
    return None if scheme is None else scheme.format.name


def tensor_formats(spec: ModelSpec, weights: str, head_weights: str = "16bit") -> dict[str, WeightFormat]:
    """Parameter name -> format. `weights` is a format's name or "as-stored"; `head_weights` "16bit" or "int8".

    InputError for a name that is not known, or a family without a table of parameters.
    """
    if head_weights not in ("16bit", "int8"):
        raise InputError("head_weights", head_weights, "16bit or int8")
    shapes = parameter_shapes(spec)
    scheme = _scheme(spec, weights)
    head = "embedding" if spec.tie_embeddings else "head"
    found = {}
    for name, shape in shapes.items():
        part = part_of(name)
        chosen = _format_of(name, shape, part, scheme, is_output=part == head)
        if head_weights == "int8" and part == head and not chosen.quantized and len(shape) > 1:
            chosen = WEIGHT_FORMATS["w8a16"]
        found[name] = chosen
    return found


def weight_bytes_of(spec: ModelSpec, weights: str, tp: int = 1, pp: int = 1, head_weights: str = "16bit") -> int:
    """Bytes of all weights in a format, on the largest of `tp` x `pp` ranks; a tied head once a rank."""
    return max(stage.total_bytes for stage in rank_weights(spec, weights, tp, pp, head_weights))


def rank_weights(
    spec: ModelSpec, weights: str, tp: int = 1, pp: int = 1, head_weights: str = "16bit"
) -> tuple[RankWeights, ...]:
    """The bytes by part that the largest rank of each pipeline stage holds."""
    positive("tp", tp, MAX_RANKS)
    split = stages(spec.num_layers, pp)
    formats = tensor_formats(spec, weights, head_weights)
    held: list[dict[str, int]] = [dict.fromkeys(PARTS, 0) for _ in split]
    for name, shape in parameter_shapes(spec).items():
        part = part_of(name)
        share, of = rank_share(name, part, spec, tp)
        size = -(-formats[name].bytes_of(shape) * share // of)
        for stage in stage_of_tensor(name, split, tied=spec.tie_embeddings):
            held[stage][part] += size
    return tuple(RankWeights(parts) for parts in held)


def weights_report(
    spec: ModelSpec, weights: str, tp: int = 1, pp: int = 1, head_weights: str = "16bit"
) -> dict[str, Any]:
    """Weights by part: parameters, bytes, what stays 16-bit, the share of a 16-bit model, and what a rank holds.

    `active_bytes` is what one token reads: of the routed experts the chosen ones, everything else in full.
    """
    shapes, formats = parameter_shapes(spec), tensor_formats(spec, weights, head_weights)
    rows: dict[str, dict[str, Any]] = {
        part: {"part": part, "parameters": 0, "bytes": 0, "bytes_16bit": 0} for part in PARTS
    }
    for name, shape in shapes.items():
        row, size = rows[part_of(name)], formats[name].bytes_of(shape)
        row["parameters"] += prod(shape)
        row["bytes"] += size
        row["bytes_16bit"] += 0 if formats[name].quantized else size
    parts = [row for row in rows.values() if row["parameters"]]
    total, count = sum(row["bytes"] for row in parts), sum(row["parameters"] for row in parts)
    active = active_parameter_count(spec)
    experts = rows["experts"]
    idle_share = (count - active) / experts["parameters"] if experts["parameters"] else 0.0
    return {
        "weights": weights,
        "format": format_name(spec, weights),
        "parts": parts,
        "total_bytes": total,
        "bytes_16bit": sum(row["bytes_16bit"] for row in parts),
        "share_of_16bit": total / (2 * count),
        "bits_per_parameter": 8 * total / count,
        "params_text": count,
        "params_active": active,
        "active_bytes": total - round(experts["bytes"] * idle_share),
        "per_rank_bytes": weight_bytes_of(spec, weights, tp, pp, head_weights),
        "how": weights_text(spec, weights, head_weights),
        "provenance": "computed",
    }


def weights_text(spec: ModelSpec, weights: str, head_weights: str = "16bit") -> str:
    """The arithmetic with the numbers put in: parameters by format, and what they take together."""
    shapes, formats = parameter_shapes(spec), tensor_formats(spec, weights, head_weights)
    counted: dict[WeightFormat, list[int]] = {}
    for name, shape in shapes.items():
        row = counted.setdefault(formats[name], [0, 0])
        row[0] += prod(shape)
        row[1] += formats[name].bytes_of(shape)
    terms = [f"{count:,} parameters in {fmt.name} ({fmt.how}) = {size:,} B" for fmt, (count, size) in counted.items()]
    total = sum(size for _, size in counted.values())
    text = " + ".join(terms)
    if len(terms) > 1:
        text += f" = {total:,} B"
    return text + (" (head tied to the embedding, held once)" if spec.tie_embeddings else "")


def format_name(spec: ModelSpec, weights: str) -> str:
    """The name of the format meant by `weights`: "as-stored" resolved to the checkpoint's."""
    return stored_weights(spec) or _plain(spec).name if weights == AS_STORED else weight_format(weights).name


def _scheme(spec: ModelSpec, weights: str) -> StoredScheme:
    if weights != AS_STORED:
        return StoredScheme(weight_format(weights))
    return stored_scheme(spec) or StoredScheme(_plain(spec))


def _plain(spec: ModelSpec) -> WeightFormat:
    """What engines load an unquantized checkpoint as: fp16 where it says so, else bf16. float32 is halved on load."""
    for config in (spec.config, spec.outer_config):
        for key in ("dtype", "torch_dtype"):
            if config.get(key) == "float16":
                return WEIGHT_FORMATS["fp16"]
    return WEIGHT_FORMATS["bf16"]


def _format_of(name: str, shape: tuple[int, ...], part: str, scheme: StoredScheme, *, is_output: bool) -> WeightFormat:
    wanted = scheme.format
    rest = WEIGHT_FORMATS["bf16"]
    if not wanted.quantized:
        return wanted
    linear = part in ("attention", "mlp", "experts", "state") and len(shape) > 1 and not _SMALL.search(name)
    if wanted.whole_model:
        if not linear and (part not in ("embedding", "head") or len(shape) < 2):
            return WEIGHT_FORMATS["fp32"]  # llama.cpp keeps vectors in float32
        return gguf_format(wanted, shape[-1], is_output=is_output)
    if not linear or (scheme.experts_only and part != "experts") or scheme.keeps(name.removesuffix(".weight")):
        return rest
    return wanted
