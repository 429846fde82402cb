"""Bytes of a model's weights by format: what is quantized, what stays 16-bit, and what one rank holds.

Embedding, head, norms, routers, convolutions and biases stay 16-bit unless a format covers the whole model (GGUF) or
the head is asked for; the rest are linear layers and take the format. "as-stored" follows the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ledger.block_formats import WEIGHT_FORMATS, WeightFormat, engine_format, gguf_format, weight_format
from ledger.checkpoint import StoredScheme, stored_scheme
from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, layers_in, outer_stages, rank_share, stages
from ledger.weights import LAYER, PARTS, TensorGroup, idle_elements, tensor_groups

__all__ = [
    "AS_STORED",
    "WEIGHT_FORMATS",
    "RankWeights",
    "WeightFormat",
    "engine_groups",
    "format_name",
    "formatted_groups",
    "rank_weights",
    "stored_weights",
    "tensor_formats",
    "weight_bytes_of",
    "weight_format",
    "weights_report",
    "weights_text",
]  # fmt: skip

AS_STORED = "as-stored"
_SMALL = re.compile(  # matrices by shape, but no linear layers, or too small and too delicate to quantize
    r"(?:router|\bgate|shared_expert_gate)\.|conv_?1d|A_log|\bD$|bias$|per_expert_scale|sinks|_coefs\.|hc_fn|_hc\.fn"
    r"|rg_lru\.|altup_|weights_proj"
)


FormattedGroups = tuple[tuple[TensorGroup, WeightFormat], ...]


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
    found = {}
    for group, fmt in formatted_groups(spec, weights, head_weights):
        match = LAYER.search(group.name)
        if match is None:
            found[group.name] = fmt
            continue
        before, after = group.name[: match.start(1)], group.name[match.end(1) :]
        found |= {f"{before}{index}{after}": fmt for index in group.layers}
    return found


def formatted_groups(spec: ModelSpec, weights: str, head_weights: str = "16bit") -> FormattedGroups:
    """Every group of like parameters with its format. InputErrors as tensor_formats."""
    if head_weights not in ("16bit", "int8"):
        raise InputError("head_weights", head_weights, "16bit or int8")
    groups = tensor_groups(spec)
    scheme = _scheme(spec, weights)
    head = "embedding" if spec.tie_embeddings else "head"
    by_layer = scheme.by_layer
    found = []
    for group in groups:
        for piece in _single_layers(group) if by_layer else (group,):
            chosen = _format_of(piece.name, piece.shape, piece.part, scheme, is_output=piece.part == head)
            if head_weights == "int8" and piece.part == head and not chosen.quantized and len(piece.shape) > 1:
                chosen = WEIGHT_FORMATS["w8a16"]
            found.append((piece, chosen))
    return tuple(found)


def engine_groups(
    spec: ModelSpec,
    weights: str,
    *,
    group: int = 64,
    symmetric: bool = True,
    head_weights: str = "16bit",
    dtype: str = "bf16",
    stored: Mapping[str, WeightFormat] | None = None,
) -> FormattedGroups:
    """Every group of like parameters with the format that our engine holds it in, by the names of its variables.

    dtype: fp32, bf16 or fp16, of all that is not quantized; stored: the format of each parameter that is held as a file
    has it (weights "as-stored"). InputErrors as tensor_formats.
    """
    rest, int8 = weight_format(dtype), WEIGHT_FORMATS["w8a16"]
    if head_weights not in ("16bit", "int8"):
        raise InputError("head_weights", head_weights, "16bit or int8")
    scheme = StoredScheme(
        rest if weights in ("none", AS_STORED) else engine_format(weights, group, symmetric=symmetric)
    )
    head = "embedding" if spec.tie_embeddings else "head"
    found = []
    for piece in tensor_groups(spec):
        for single in _single_layers(piece) if stored else (piece,):
            chosen = _format_of(single.name, single.shape, single.part, scheme, is_output=single.part == head)
            chosen = (stored or {}).get(single.name, chosen if chosen.quantized else rest)
            if head_weights == "int8" and single.part == head and not chosen.quantized and len(single.shape) > 1:
                chosen = int8
            found.append((single, chosen))
    return tuple(found)


def weight_bytes_of(spec: ModelSpec, weights: str, tp: int = 1, pp: int = 1, head_weights: str = "16bit") -> int:
    """Bytes of all weights in a format, on the largest of `tp` x `pp` ranks; a tied head once a rank."""
    return max(stage.total_bytes for stage in rank_weights(spec, weights, tp, pp, head_weights))


def rank_weights(
    spec: ModelSpec,
    weights: str,
    tp: int = 1,
    pp: int = 1,
    head_weights: str = "16bit",
    groups: FormattedGroups | None = None,
) -> tuple[RankWeights, ...]:
    """The bytes by part that the largest rank of each pipeline stage holds. `groups` spares deriving them again."""
    positive("tp", tp, MAX_RANKS)
    split = stages(spec.num_layers, pp)
    held: list[dict[str, int]] = [dict.fromkeys(PARTS, 0) for _ in split]
    for group, fmt in groups or formatted_groups(spec, weights, head_weights):
        share, of = rank_share(group.name, group.part, spec, tp)
        size = -(-fmt.bytes_of(group.shape) * share // of)
        if not group.layers:
            for stage in outer_stages(group.name, pp, tied=spec.tie_embeddings):
                held[stage][group.part] += size
            continue
        counts = [layers_in(layers, group.layers) for layers in split]
        counts[-1] += group.count - sum(counts)  # layers beyond the decoder's own, as prediction layers are
        for place, count in enumerate(counts):
            held[place][group.part] += size * count
    return tuple(RankWeights(parts) for parts in held)


def weights_report(
    spec: ModelSpec,
    weights: str,
    tp: int = 1,
    pp: int = 1,
    head_weights: str = "16bit",
    groups: FormattedGroups | None = None,
) -> dict[str, Any]:
    """Weights by part: parameters, bytes, what stays 16-bit, the share of a 16-bit model, and what a rank holds.

    `active_bytes` is what one token reads: of the routed experts the chosen ones, everything else in full. `groups`
    spares deriving them again.
    """
    groups = groups or formatted_groups(spec, weights, head_weights)
    rows: dict[str, dict[str, Any]] = {
        part: {"part": part, "parameters": 0, "bytes": 0, "bytes_16bit": 0} for part in PARTS
    }
    idle = 0
    for group, fmt in groups:
        row, size = rows[group.part], group.count * fmt.bytes_of(group.shape)
        row["parameters"] += group.elements
        row["bytes"] += size
        row["bytes_16bit"] += 0 if fmt.quantized else size
        idle += size * idle_elements(spec, group) // group.elements
    parts = [row for row in rows.values() if row["parameters"]]
    total, count = sum(row["bytes"] for row in parts), sum(row["parameters"] for row in parts)
    return {
        "weights": weights,
        "format": format_name(spec, weights),
        "parts": parts,
        "total_bytes": total,
        "bytes_16bit": sum(row["bytes_16bit"] for row in parts),
        "share_of_16bit": total / (2 * count),
        "bits_per_parameter": 8 * total / count,
        "params_text": count,
        "params_active": count - sum(idle_elements(spec, group) for group, _ in groups),
        "active_bytes": total - idle,
        "per_rank_bytes": max(stage.total_bytes for stage in rank_weights(spec, weights, tp, pp, groups=groups)),
        "how": weights_text(spec, weights, groups=groups),
        "provenance": "computed",
    }


def weights_text(
    spec: ModelSpec, weights: str, head_weights: str = "16bit", groups: FormattedGroups | None = None
) -> str:
    """The arithmetic with the numbers put in: parameters by format, and what they take together."""
    counted: dict[WeightFormat, list[int]] = {}
    for group, fmt in groups or formatted_groups(spec, weights, head_weights):
        row = counted.setdefault(fmt, [0, 0])
        row[0] += group.elements
        row[1] += group.count * fmt.bytes_of(group.shape)
    terms = [f"{count:,} parameters in {fmt.name} ({fmt.how}) = {size:,} B" for fmt, (count, size) in counted.items()]
    total = sum(size for _, size in counted.values())
    text = " + ".join(terms)
    if len(terms) > 1:
        text += f" = {total:,} B"
    return text + (" (head tied to the embedding, held once)" if spec.tie_embeddings else "")


def _single_layers(group: TensorGroup) -> Iterator[TensorGroup]:
    """The group cut into single parameters, each under its own name."""
    match = LAYER.search(group.name)
    if match is None or not group.layers:
        yield group
        return
    before, after = group.name[: match.start(1)], group.name[match.end(1) :]
    for index in group.layers:
        yield replace(group, name=f"{before}{index}{after}", layers=(index,))


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
