"""What the ledger needs to know of a model's quantized matrices: each parameter's format, by its Hugging Face name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_engine.quant.linear import AnyWeight, PackedMatrix
from core_engine.quant.matrix import QuantizedMatrix
from ledger.packed_weights import MatrixFormat

if TYPE_CHECKING:
    from core_engine.model.decoder import DecoderWeights

PRODUCTS = {
    "qkv": ("self_attn", ("q", "k", "v")),
    "output": ("self_attn", ("o",)),
    "gate_up": ("mlp", ("gate", "up")),
    "down": ("mlp", ("down",)),
}


def format_of(matrix: QuantizedMatrix, depth: int) -> MatrixFormat:
    """The format of a matrix of that many columns."""
    groups = depth // matrix.group
    return MatrixFormat(
        bits=matrix.bits,
        group=matrix.group,
        scale_bytes=matrix.scale.element_size(),
        offset="zero" if matrix.zero is not None else "minimum" if matrix.minimum is not None else "",
        groups_of_super=0 if matrix.scale_codes is None else groups // matrix.scale.shape[1],
        activation_group=matrix.activation_group or 0,
        ordered=matrix.order is not None,
    )


def formats_of(weights: DecoderWeights) -> dict[str, MatrixFormat]:
    """Parameter name -> format, of those that are quantized; a tied head is the embedding."""
    found = _format("model.embed_tokens.weight", weights.embedding)
    if weights.head is not weights.embedding:
        found |= _format("lm_head.weight", weights.head)
    for index, layer in enumerate(weights.layers):
        for field, (module, names) in PRODUCTS.items():
            weight = getattr(layer, field)
            parts = getattr(weight, "parts", [weight] * len(names))  # one matrix of several parts: all have its format
            for name, part in zip(names, parts, strict=True):
                found |= _format(f"model.layers.{index}.{module}.{name}_proj.weight", part)
    return found


def _format(name: str, weight: AnyWeight) -> dict[str, MatrixFormat]:
    if not isinstance(weight, PackedMatrix | QuantizedMatrix):
        return {}
    return {name: format_of(weight.form if isinstance(weight, PackedMatrix) else weight, weight.shape[1])}
