"""The order of operands of a linear layer on the CPU: F.linear against (W x^T)^T, in turn, medians and ratios.

python benchmarks/linear_order.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

OUT, IN, WEIGHTS, ROUNDS = 3072, 576, 30, 9


def main() -> None:
    """Print one line a token count; 30 weights are used in turn so that none stays in the cache."""
    weights = [torch.randn(OUT, IN) for _ in range(WEIGHTS)]
    print(f"{'tokens':>6} {'F.linear us':>12} {'(W xT)T us':>12} {'ratio':>6}   weight {OUT} x {IN}, fp32")
    for tokens in (1, 2, 4, 8, 16, 64, 256):
        x = torch.randn(tokens, IN)
        times: dict[str, list[float]] = {"linear": [], "transposed": []}
        with torch.inference_mode():
            for _ in range(ROUNDS):  # A B A B
                times["linear"].append(_mean_us(lambda w, x=x: F.linear(x, w), weights))
                times["transposed"].append(_mean_us(lambda w, x=x: torch.mm(w, x.t()).t().contiguous(), weights))
        ours, theirs = statistics.median(times["transposed"]), statistics.median(times["linear"])
        print(f"{tokens:6} {theirs:12.0f} {ours:12.0f} {theirs / ours:6.2f}")


def _mean_us(product: Callable[[torch.Tensor], torch.Tensor], weights: list[torch.Tensor]) -> float:
    began = time.perf_counter()
    for weight in weights:
        product(weight)
    return (time.perf_counter() - began) / len(weights) * 1e6


if __name__ == "__main__":
    main()
