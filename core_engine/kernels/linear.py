"""The matrix product behind every linear layer, in the operand order that the device's library runs fastest."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [num_tokens, in] times weight [out, in] transposed: [num_tokens, out], contiguous.

    On a CPU the product is computed as (weight x^T)^T: with few tokens MKL then streams the weight once instead of
    packing it first (fp32, weight 3072 x 576, 2 cores: 0.39 ms against 1.17 ms at 4 tokens, 0.56 against 0.85 ms at 8).
    """
    if x.device.type == "cpu" and x.shape[0] > 1:
        return torch.mm(weight, x.t()).t().contiguous()
    return F.linear(x, weight)
