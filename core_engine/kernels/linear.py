"""The matrix product behind every linear layer, in the operand order that the device's library runs fastest."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from core_engine.quant.linear import AnyWeight, Stacked, held


def linear(x: torch.Tensor, weight: AnyWeight, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [num_tokens, in] times weight [out, in] transposed, plus bias [out]: [num_tokens, out], contiguous.

    A quantized weight brings its own product (quant/linear.py).

    On a CPU the product is computed as (weight x^T)^T: with few tokens MKL then streams the weight once instead of
    packing it first: 2.1 times as fast at 2 and 4 tokens, 1.3 at 8, 0.95 at 256 (benchmarks/linear_order.py).
    """
    weight = held(weight)
    if isinstance(weight, Stacked):
        joined = torch.cat([linear(x, part) for part in weight.parts], dim=-1)
        return joined if bias is None else joined + bias
    if not isinstance(weight, torch.Tensor):
        product = weight.product(x)
        return product if bias is None else product + bias
    if x.device.type == "cpu" and x.shape[0] > 1:
        if bias is not None:
            return torch.addmm(bias[:, None], weight, x.t()).t().contiguous()
        return torch.mm(weight, x.t()).t().contiguous()
    return F.linear(x, weight, bias)
