"""Quantized matrices of random codes in every form that QuantizedMatrix has, for the tests of who runs them."""

from __future__ import annotations

import torch

from core_engine.quant.matrix import QuantizedMatrix


def codes(out, depth, bits, seed=0):
    """Random codes; the first rows hold the smallest and the largest only."""
    made = torch.randint(0, 2**bits, (out, depth), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    made[0], made[1] = 0, 2**bits - 1
    return made


def half(*shape, seed=1, spread=0.02):
    """Positive float16 numbers."""
    numbers = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return ((numbers + 0.5) * spread).half()


def small(*shape, bits=6, seed=2):
    """Random uint8 below 2**bits."""
    return torch.randint(0, 2**bits, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def symmetric(bits, group):
    def make(out, depth):
        width = group or depth
        return QuantizedMatrix(bits, width, codes(out, depth, bits), half(out, depth // width))

    return make


def with_zero(bits, group):
    def make(out, depth):
        groups = depth // group
        zero = small(out, groups, bits=bits)
        return QuantizedMatrix(bits, group, codes(out, depth, bits), half(out, groups), zero=zero)

    return make


def with_minimum(bits, group):
    def make(out, depth):
        groups = depth // group
        least = -half(out, groups, seed=3) * 7
        return QuantizedMatrix(bits, group, codes(out, depth, bits), half(out, groups), minimum=least)

    return make


def nested(bits, group, groups_of_super, minimum):
    """As Q4_K (4, 32, 8, True) and Q6_K (6, 16, 16, False)."""

    def make(out, depth):
        groups = depth // group
        supers = groups // groups_of_super
        scale_codes = small(out, groups, seed=4)
        if not minimum:
            scale_codes = (scale_codes.to(torch.int16) - 32).to(torch.int8)
        return QuantizedMatrix(
            bits, group, codes(out, depth, bits), half(out, supers, spread=1e-3), scale_codes=scale_codes,
            minimum=half(out, supers, seed=5, spread=1e-2) if minimum else None,
            minimum_codes=small(out, groups, seed=6) if minimum else None,
        )  # fmt: skip

    return make


def rounding(group, activation_group):
    """W8A8: one float32 scale for `group` columns (None: a row)."""

    def make(out, depth):
        width = group or depth
        scale = half(out, depth // width).float()
        return QuantizedMatrix(8, width, codes(out, depth, 8), scale, activation_group=activation_group or depth)

    return make


def ordered(make):
    """The same with its columns in another order."""

    def reordered(out, depth):
        matrix = make(out, depth)
        order = torch.randperm(depth, generator=torch.Generator().manual_seed(7))
        return QuantizedMatrix(**{**vars(matrix), "order": order})

    return reordered


# Formats whose activations stay as they are, by name: (out, depth) -> matrix. Depths are multiples of 96.
FORMATS = {
    "w8 a row": symmetric(8, None),
    "w8 group 32 (Q8_0)": symmetric(8, 32),
    "w8 zero": with_zero(8, 48),
    "w4 group 32": symmetric(4, 32),
    "w4 group 48": symmetric(4, 48),
    "w4 zero": with_zero(4, 32),
    "w4 minimum (Q4_1)": with_minimum(4, 32),
    "w4 nested (Q4_K)": nested(4, 32, 3, True),
    "w6": symmetric(6, 96),
    "w6 nested (Q6_K)": nested(6, 16, 6, False),
    "w4 ordered": ordered(symmetric(4, 32)),
    "w8 ordered": ordered(symmetric(8, None)),
}
ROUNDING = {
    "w8a8 32": rounding(None, 32),
    "w8a8 a token": rounding(None, None),
    "w8a8 48 in groups": rounding(96, 48),
    "w8a8 ordered": ordered(rounding(None, 32)),
}
