"""Quantized products in the interpreter: every form against the dequantized matrix, or against sums of integers.

float32 and float16: the interpreter's dot of bfloat16 is none.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from core_engine.kernels.triton import tuning, w4a16, w8a8
from core_engine.kernels.triton.w4a16 import WeightOnly
from core_engine.kernels.triton.w8a8 import W8A8
from core_engine.quant.linear import integer_product, rounded
from core_engine.quant.matrix import QuantizedMatrix
from tests.core_engine.quantized import FORMATS, ROUNDING, ordered, rounding, symmetric, with_minimum, with_zero

CPU = torch.device("cpu")
SMALL = {"BLOCK_N": 32, "BLOCK_M": 16, "num_warps": 4, "num_stages": 2}
# Depths of 384 are whole groups and tiles of all of these; 70 rows are no multiple of a block's.
FORMS = {
    **{name: make for name, make in FORMATS.items() if w4a16.supports(make(4, 384)) is None},
    "w4 group 64": symmetric(4, 64),
    "w4 group 128": symmetric(4, 128),
    "w4 group 128 zero (GPTQ, AWQ)": with_zero(4, 128),
    "w4 group 64 zero": with_zero(4, 64),
    "w4 a row": symmetric(4, None),
    "w4 group 128 minimum": with_minimum(4, 128),
    "w4 zero ordered": ordered(with_zero(4, 128)),
    "w8 group 128": symmetric(8, 128),
}
INTEGER = {
    **{name: make for name, make in ROUNDING.items() if w8a8.supports(make(4, 384)) is None},
    "w8a8 32 in groups of 96": rounding(96, 32),
    "w8a8 64": rounding(None, 64),
    "w8a8 128 in groups": rounding(128, 128),
}
TOKENS = (1, 2, 16, 17, 33)


def inputs(tokens, depth, dtype=torch.float32):
    return (torch.randn(tokens, depth, generator=torch.Generator().manual_seed(tokens)) * 3).to(dtype)


def assert_near(found, expected, x, matrix):
    """Within roundings of x's format of the sum of magnitudes."""
    by = {torch.float32: 1e-6, torch.float16: 1e-3}[x.dtype]
    allowed = by * (x.double().abs() @ matrix.dequantized().double().abs().t()) + 1e-6
    assert found.dtype is x.dtype and found.is_contiguous()
    assert ((found.double() - expected).abs() <= allowed).all()


def exact(x, matrix):
    return x.double() @ matrix.dequantized().double().t()


@pytest.mark.parametrize("name", FORMS)
def test_products_with_codes_are_those_of_the_dequantized_matrix(name):
    place = list(FORMS).index(name)
    matrix, tokens = FORMS[name](70, 384), TOKENS[place % len(TOKENS)]
    dtype = (torch.float32, torch.float16)[place % 2]
    x = inputs(tokens, 384, dtype)
    found = WeightOnly.of(matrix, CPU).product_with({**SMALL, "SPLITS": 1 + place % 3}, x)
    assert_near(found, exact(x, matrix), x, matrix)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shape", [(50, 384), (33, 1536)], ids=str)
def test_products_of_every_form_and_number_of_tokens(name, shape):
    matrix = FORMS[name](*shape)
    weight = WeightOnly.of(matrix, CPU)
    for dtype in (torch.float32, torch.float16):
        for tokens in TOKENS:
            x, bias = inputs(tokens, shape[1], dtype), inputs(1, shape[0], dtype)[0]
            assert_near(weight.product(x, bias), exact(x, matrix) + bias.double(), x, matrix)


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("form", ["w4 group 64 zero", "w8a8 32"])
def test_splits_of_the_depth_and_a_bias_give_the_same_product(form, splits):
    """Five splits of three tiles: some are empty."""
    held, make = (W8A8, INTEGER[form]) if form in INTEGER else (WeightOnly, FORMS[form])
    matrix = make(70, 384).rows(0, 50)
    x, bias = inputs(5, 384), inputs(1, 50)[0]
    expected = integer_product(x, matrix).double() if held is W8A8 else exact(x, matrix)
    weight = held.of(matrix, CPU)
    found = weight.product_with({**SMALL, "SPLITS": splits}, x, bias)
    assert_near(found, expected + bias.double(), x, matrix)
    assert torch.equal(found, weight.product_with({**SMALL, "SPLITS": splits}, x, bias))


@pytest.mark.parametrize("held", [WeightOnly, W8A8])
def test_without_a_table_a_product_takes_the_rules_settings(held, monkeypatch, tmp_path):
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path))
    tuning.forget()
    matrix = (rounding(None, 32) if held is W8A8 else symmetric(4, 128))(40, 128)
    x = inputs(3, 128)
    expected = integer_product(x, matrix) if held is W8A8 else exact(x, matrix)
    assert_near(held.of(matrix, CPU).product(x), expected.double(), x, matrix)


@pytest.mark.parametrize("name", INTEGER)
def test_integer_products_are_those_of_the_oracle(name):
    place = list(INTEGER).index(name)
    matrix, tokens = INTEGER[name](70, 384), TOKENS[place % len(TOKENS)]
    x = inputs(tokens, 384, (torch.float32, torch.float16)[place % 2])
    found = W8A8.of(matrix, CPU).product_with({**SMALL, "SPLITS": 1 + place % 2}, x)
    assert_near(found, integer_product(x, matrix).double(), x, matrix)


def test_a_whole_tokens_sums_are_exact_integers():
    matrix = replace(rounding(None, None)(40, 384), scale=torch.ones(40, 1))
    x = torch.randint(-127, 128, (3, 384), generator=torch.Generator().manual_seed(0)).float()
    x[:, 0] = 127
    found = W8A8.of(matrix, CPU).product_with({**SMALL, "SPLITS": 1}, x)
    assert torch.equal(found.double(), x.double() @ (matrix.codes.double() - 128).t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("share", [32, 128, 384])
def test_activations_are_rounded_as_the_oracle_rounds(share, dtype):
    x = inputs(4, 384, dtype)
    x[1] = 0
    x[2] = torch.arange(384) % 255 - 127  # whole numbers
    x[3] = (torch.arange(384) % 254 - 126.5) * 2  # ties
    whole, scales = w8a8.round_tokens(x, share)
    expected, expected_scales = rounded(x, share)
    assert torch.equal(whole.float(), expected.view(4, 384)) and torch.equal(scales.t(), expected_scales)


def test_rounding_takes_columns_in_the_given_order():
    x, order = inputs(2, 96), torch.randperm(96, generator=torch.Generator().manual_seed(3))
    for share in (32, 96):
        for found, expected in zip(
            w8a8.round_tokens(x, share, order), w8a8.round_tokens(x[:, order], share), strict=True
        ):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["w4 zero", "w4 group 128", "w8 a row", "w4 zero ordered"])
def test_each_code_is_at_its_own_place(name):
    """Inputs of a single one give single columns, exactly."""
    matrix = FORMS[name](40, 256 if "128" in name or "ordered" in name else 96)
    depth = matrix.shape[1]
    found = WeightOnly.of(matrix, CPU).product_with({**SMALL, "BLOCK_M": 128, "SPLITS": 1}, torch.eye(depth))
    assert torch.equal(found.t(), matrix.dequantized())


@pytest.mark.parametrize("name", ["w4 zero", "w4 minimum (Q4_1)", "w8 a row", "w4 ordered"])
def test_rows_are_the_dequantized_ones(name):
    matrix = FORMS[name](40, 192)
    ids = torch.tensor([0, 1, 39, 7, 7])
    assert torch.equal(WeightOnly.of(matrix, CPU).rows(ids, torch.float32), matrix.dequantized()[ids])


def test_bytes_held_are_those_of_the_codes_and_of_the_groups_numbers():
    def held(weight):
        return sum(tensor.numel() * tensor.element_size() for tensor in weight.tensors())

    groups = 64 * 384 // 128
    assert held(WeightOnly.of(with_zero(4, 128)(64, 384), CPU)) == 64 * 384 // 2 + groups * 3
    assert held(WeightOnly.of(symmetric(8, None)(64, 384), CPU)) == 64 * 384 + 64 * 2
    assert held(WeightOnly.of(ordered(symmetric(4, 128))(64, 384), CPU)) == 64 * 384 // 2 + groups * 2 + 384 * 8
    assert held(W8A8.of(rounding(None, 32)(64, 384), CPU)) == 64 * 384 + 64 * 4


@pytest.mark.parametrize(
    ("matrix", "why"),
    [
        (FORMATS["w6"](4, 384), "6 bits"),
        (FORMATS["w4 nested (Q4_K)"](4, 384), "nested"),
        (ROUNDING["w8a8 32"](4, 384), "w8a8.py"),
        (symmetric(4, 24)(4, 96), "groups of 24"),
    ],
    ids=["six bits", "nested", "rounded inputs", "groups"],
)
def test_forms_without_a_kernel_are_refused_by_name(matrix, why):
    assert why in (w4a16.supports(matrix) or "")
    with pytest.raises(ValueError, match=why):
        WeightOnly.of(matrix, CPU)


@pytest.mark.parametrize(
    ("matrix", "why"),
    [
        (symmetric(8, None)(4, 384), "w4a16.py"),
        (ROUNDING["w8a8 48 in groups"](4, 384), "groups of 48"),
        (rounding(96, 64)(4, 384), "do not divide"),
        (replace(with_zero(8, 96)(4, 384), activation_group=32), "symmetric"),
    ],
    ids=["plain inputs", "48", "across groups", "zero"],
)
def test_integer_forms_without_a_kernel_are_refused_by_name(matrix, why):
    assert why in (w8a8.supports(matrix) or "")
    with pytest.raises(ValueError, match=why):
        W8A8.of(matrix, CPU)


def test_no_tokens_give_no_rows():
    for weight in (WeightOnly.of(symmetric(4, 32)(40, 96), CPU), W8A8.of(rounding(None, 32)(40, 96), CPU)):
        assert weight.product(torch.empty(0, 96)).shape == (0, 40)


def test_matrices_of_one_form_are_one_below_the_other():
    parts = [with_zero(4, 32)(rows, 96) for rows in (8, 24)]
    whole = w4a16.joined(parts)
    assert whole is not None and torch.equal(whole.dequantized(), torch.cat([part.dequantized() for part in parts]))
    assert w4a16.joined([parts[0], symmetric(4, 32)(8, 96)]) is None
    assert w4a16.joined([parts[0], with_zero(4, 48)(8, 96)]) is None
    assert w4a16.joined([parts[0], replace(parts[1], order=torch.arange(96))]) is None
    same = torch.randperm(96)
    assert w4a16.joined([replace(part, order=order) for part, order in zip(parts, (same, same.clone()), strict=True)])
    assert w4a16.joined([replace(parts[0], order=same), replace(parts[1], order=same.flip(0))]) is None


@triton.jit
def _all_numbers(codes, out, DTYPE: tl.constexpr, BITS: tl.constexpr):
    places = tl.arange(0, 256)
    tl.store(out + places, w4a16.numbers(tl.load(codes + places), DTYPE, BITS).to(tl.float32))


@pytest.mark.parametrize(
    ("dtype", "bits"), [(tl.float16, 4), (tl.float16, 8), (tl.bfloat16, 4), (tl.float32, 4), (tl.float32, 8)], ids=str
)
def test_bits_below_an_exponent_are_the_codes(dtype, bits):
    """bfloat16 too, whose products the interpreter can't show; at 8 bits it can't convert them either."""
    codes, out = (torch.arange(256) % 2**bits).to(torch.uint8), torch.empty(256)
    _all_numbers[(1,)](codes, out, DTYPE=dtype, BITS=bits)
    offset = w4a16.offset_of(dtype, bits)
    assert torch.equal(out, codes.float() + getattr(offset, "value", offset))


def test_a_matrix_in_a_row_of_few_codes():
    """Fewer rows than a block, one tile."""
    matrix = QuantizedMatrix(4, 32, torch.arange(32, dtype=torch.uint8)[None] % 16, torch.full((1, 1), 0.5).half())
    x = inputs(1, 32)
    assert_near(WeightOnly.of(matrix, CPU).product_with({**SMALL, "SPLITS": 1}, x), exact(x, matrix), x, matrix)
