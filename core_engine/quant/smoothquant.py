"""SmoothQuant: outliers of activations are moved into the weights, which round more easily.

Xiao et al., 2022, arXiv:2211.10438: s = max|x|**alpha / max|w|**(1 - alpha) for each input; x / s times W s is the same
product. Inputs that come out of a norm take 1 / s from its weight, at no cost in a step.
"""

from __future__ import annotations

import torch

SMALLEST = 1e-5


def smoothing_scales(weight: torch.Tensor, max_abs: torch.Tensor, alpha: float) -> torch.Tensor:
    """s float32 [depth] of weight [out, depth] and the largest |x| of each input, max_abs [depth].

    alpha from 0 (all difficulty stays in the weights) to 1 (all of it moves there). An input that was always 0 gets 1.
    """
    columns = weight.float().abs().amax(0).clamp(min=SMALLEST)
    scales = max_abs.float().clamp(min=SMALLEST).pow(alpha) / columns.pow(1 - alpha)
    return torch.where(max_abs > 0, scales.clamp(min=SMALLEST), 1.0)
