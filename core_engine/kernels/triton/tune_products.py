"""`python -m core_engine.kernels.triton.tune_products FORM OUT DEPTH [--group G] [--tokens N]...`: measure settings of
a quantized product on this CUDA device and keep the fastest for later runs (tuning.py). Minutes a shape: every
candidate is compiled.
"""

from __future__ import annotations

import argparse

import torch

from core_engine.kernels.triton import tuning
from core_engine.kernels.triton.w4a16 import WeightOnly
from core_engine.kernels.triton.w8a8 import W8A8
from core_engine.quant.matrix import QuantizedMatrix

BITS = {"w4a16": 4, "w8a16": 8, "w8a8": 8}
TOKENS = (1, 16, 64, 256, 2048)


def random_matrix(form: str, out: int, depth: int, group: int) -> QuantizedMatrix:
    """Codes of no meaning in a form of BITS: how long a product takes does not depend on them."""
    codes = torch.randint(0, 2 ** BITS[form], (out, depth), dtype=torch.uint8)
    if form == "w8a8":  # here the group is that of the activations
        return QuantizedMatrix(8, depth, codes, torch.ones(out, 1).half(), activation_group=group)
    return QuantizedMatrix(BITS[form], group, codes, torch.ones(out, depth // group).half())


def tuned(form: str, matrix: QuantizedMatrix, tokens: int, device: torch.device) -> tuple[tuning.Config, float]:
    """The fastest settings for so many tokens, as tuning.tune; they are those that the product looks up."""
    weight = W8A8.of(matrix, device) if form == "w8a8" else WeightOnly.of(matrix, device)
    x = torch.zeros(tokens, matrix.shape[1], dtype=torch.bfloat16, device=device)
    shape = weight.shape_for(tokens)
    return tuning.tune(
        form,
        shape,
        tuning.name_of(device),
        tuning.product_candidates(shape),
        lambda found: weight.product_with(found, x),
    )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="Measure launch settings of quantized products on this CUDA device.")
    parser.add_argument("form", choices=BITS)
    parser.add_argument("out", type=int)
    parser.add_argument("depth", type=int)
    parser.add_argument("--group", type=int, help="columns of a scale; of the activations' for w8a8. All without it")
    parser.add_argument("--tokens", type=int, action="append")
    wanted = parser.parse_args()
    matrix = random_matrix(wanted.form, wanted.out, wanted.depth, wanted.group or wanted.depth)
    for tokens in wanted.tokens or TOKENS:
        settings, seconds = tuned(wanted.form, matrix, tokens, torch.device("cuda", torch.cuda.current_device()))
        print(f"{tokens} tokens: {seconds * 1e6:.1f} us with {settings}")


if __name__ == "__main__":
    main()
