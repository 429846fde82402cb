"""Quantized weights as a CUDA device multiplies them: each in the form of the kernel that takes it. Knows no model."""

from __future__ import annotations

import torch

from core_engine.kernels.triton import w4a16, w8a8
from core_engine.quant.linear import AnyWeight, Held, HeldMatrix, PackedMatrix, held_by
from core_engine.quant.matrix import Joined, QuantizedMatrix


def on_device(weight: AnyWeight) -> Held:
    """The weight for our kernels. Matrices of one input and one form become one; what no kernel takes (6 bits, nested
    scales) is dequantized by torch for each product."""
    if isinstance(weight, Joined):
        parts = [part for part in weight.parts if isinstance(part, QuantizedMatrix)]
        if len(parts) == len(weight.parts) and (whole := w4a16.joined(parts)) is not None:
            return _matrix(whole)
    return held_by(weight, _matrix)


def _matrix(matrix: QuantizedMatrix) -> HeldMatrix:
    device: torch.device = matrix.codes.device
    if w8a8.supports(matrix) is None:
        return w8a8.W8A8.of(matrix, device)
    if w4a16.supports(matrix) is None:
        return w4a16.WeightOnly.of(matrix, device)
    return PackedMatrix.of(matrix)
