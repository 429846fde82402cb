"""AWQ: inputs that are large on average are made smaller and their weights larger before rounding.

Lin et al., 2023, arXiv:2306.00978: scales s = mean |x|**alpha, alpha from a grid, then a clip of each group's range.
Both take what changes the products least. No inputs are kept for that: |D x|^2 summed over x is D H D^T, H = X^T X.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import fit, round_to_nearest

ALPHAS = tuple(step / 10 for step in range(10))
CLIPS = tuple(1 - step / 20 for step in range(11))


@dataclass(frozen=True)
class Levels:
    """How weights are rounded: bits, columns that share a scale, levels around zero or not."""

    bits: int
    group: int
    symmetric: bool


def input_scales(
    weight: torch.Tensor, hessian: torch.Tensor, mean_abs: torch.Tensor, levels: Levels
) -> tuple[torch.Tensor, float]:
    """(s float32 [depth], alpha): weight [out, depth] times s, rounded, and inputs divided by s are nearest to exact.

    hessian [depth, depth] is X^T X, mean_abs [depth] the mean |x| of each input. alpha 0 is s = 1.
    """
    best = (float("inf"), torch.ones_like(mean_abs), 0.0)
    for alpha in ALPHAS:
        scales = _scales(mean_abs, alpha)
        rounded = round_to_nearest(weight * scales, levels.bits, levels.group, levels.symmetric).dequantized() / scales
        error = output_error(rounded - weight, hessian)
        if error < best[0]:
            best = (error, scales, alpha)
    return best[1], best[2]


def clipped(weight: torch.Tensor, hessian: torch.Tensor, levels: Levels) -> QuantizedMatrix:
    """Weight [out, depth] rounded, the range of each group narrowed where that brings its products nearer to exact."""
    out, depth = weight.shape
    groups = weight.view(out, depth // levels.group, levels.group)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    blocks = torch.stack([
        hessian[start : start + levels.group, start : start + levels.group] for start in range(0, depth, levels.group)
    ])  # fmt: skip
    least = torch.full((out, depth // levels.group, 1), float("inf"))
    narrowed = groups
    for clip in CLIPS:
        within = groups.clamp(low * clip, high * clip)
        rounded = round_to_nearest(within.view(out, depth), levels.bits, levels.group, levels.symmetric).dequantized()
        difference = rounded.view_as(groups) - groups
        along = torch.bmm(difference.transpose(0, 1), blocks).transpose(0, 1)
        error = (along * difference).sum(-1, keepdim=True)
        narrowed = torch.where(error < least, within, narrowed)
        least = torch.minimum(error, least)
    plain = narrowed.reshape(out, depth)
    return fit(plain, levels.bits, levels.group, levels.symmetric).matrix(plain)


def output_error(difference: torch.Tensor, hessian: torch.Tensor) -> float:
    """Sum of squares of what `difference` [out, depth] changes in the products with inputs whose X^T X is `hessian`."""
    return float(((difference @ hessian) * difference).sum())


def _scales(mean_abs: torch.Tensor, alpha: float) -> torch.Tensor:
    scales = mean_abs.float().pow(alpha).clamp(min=1e-4)
    return scales / (scales.max() * scales.min()).sqrt()  # around 1: folded into a neighbour, neither gets tiny
