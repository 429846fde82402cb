"""Round to nearest: the levels of a group from its extremes, every weight to the nearest one. All math in float32.

Symmetric 4 bits: scale = max |w| / 7.5, as GPTQ and compressed-tensors take it, so that no weight is further than half
a step from its level. Symmetric 8 bits: max |w| / 127, which leaves -128 out: its absolute value is no int8.
Asymmetric: scale = (max - min) / 15 over a range that contains 0, and a zero point from 0 to 15.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core_engine.quant.matrix import QuantizedMatrix

HALF_RANGE = {4: 7.5, 8: 127.0}
LARGEST_SCALE = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Grid:
    """The levels of a matrix: scale float16 [out, groups]; zero uint8 [out, groups], None when symmetric."""

    bits: int
    group: int
    scale: torch.Tensor
    zero: torch.Tensor | None

    def encode(self, weight: torch.Tensor) -> torch.Tensor:
        """Codes uint8 [out, depth] of the nearest levels of weight [out, depth]; depth is groups * group."""
        out, depth = weight.shape
        scale = self.scale.float()[..., None]
        steps = weight.float().view(out, depth // self.group, self.group) / torch.where(scale == 0, 1.0, scale)
        middle = 2.0 ** (self.bits - 1) if self.zero is None else self.zero.float()[..., None]
        return (steps.round() + middle).clamp(0, 2**self.bits - 1).to(torch.uint8).view(out, depth)

    def matrix(self, weight: torch.Tensor, activation_group: int | None = None) -> QuantizedMatrix:
        """Weight [out, depth] rounded to these levels."""
        codes = self.encode(weight)
        return QuantizedMatrix(
            self.bits, self.group, codes, self.scale, zero=self.zero, activation_group=activation_group
        )


def fit(weight: torch.Tensor, bits: int, group: int, symmetric: bool) -> Grid:
    """The levels of weight [out, depth] by the extremes of every `group` columns; `group` divides depth."""
    out, depth = weight.shape
    groups = weight.float().view(out, depth // group, group)
    if symmetric:
        return Grid(bits, group, _half(groups.abs().amax(-1) / HALF_RANGE[bits]), None)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = _half((high - low) / (2**bits - 1))
    steps = scale.float()
    zero = (-low / torch.where(steps == 0, 1.0, steps)).round().clamp(0, 2**bits - 1)
    return Grid(bits, group, scale, zero.to(torch.uint8))


def round_to_nearest(
    weight: torch.Tensor, bits: int, group: int, symmetric: bool, activation_group: int | None = None
) -> QuantizedMatrix:
    """Weight [out, depth] in levels of its own extremes."""
    return fit(weight, bits, group, symmetric).matrix(weight, activation_group)


def _half(scale: torch.Tensor) -> torch.Tensor:
    return scale.clamp(max=LARGEST_SCALE).half()
