"""Products with quantized matrices: every format, compiled and by torch, against the dequantized matrix in float64."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from core_engine.kernels.cpu import native
from core_engine.kernels.cpu.packing import packed
from core_engine.kernels.linear import linear
from core_engine.quant.linear import PackedMatrix, held, integer_product, pack, unpack
from core_engine.quant.matrix import Joined
from ledger.errors import InputError
from tests.core_engine.quantized import FORMATS, ROUNDING, symmetric

ROWS = (1, 2, 3, 5, 8, 33)
SHAPES = ((50, 96), (33, 576), (16, 960), (70, 1536))
compiled = pytest.mark.usefixtures("compiled_kernels")


def inputs(tokens, depth):
    return torch.randn(tokens, depth, generator=torch.Generator().manual_seed(tokens)) * 3


def by_kernels(matrix, x, lib=None):
    """x W^T by compiled code."""
    lib = lib or native.library()
    [[found]], kept = packed(lib, [[matrix]], torch.float32)
    out = torch.full((len(x), matrix.shape[0]), torch.nan)
    lib.trilemma_product(
        ctypes.byref(found), ctypes.c_void_p(x.data_ptr()), ctypes.c_int64(len(x)), ctypes.c_void_p(out.data_ptr())
    )
    del kept
    return out


def exact(matrix, x):
    return x.double() @ matrix.dequantized().double().t()


def assert_rounded_only(found, matrix, x):
    """Within a few float32 roundings of the sum of magnitudes."""
    largest = 2.0**matrix.bits * matrix_scale(matrix)
    allowed = 3e-7 * (x.abs().double().sum(dim=1, keepdim=True) * largest)
    assert ((found - exact(matrix, x)).abs() <= allowed).all()


def matrix_scale(matrix):
    """The largest scale of each row, float64 [out]."""
    step = replace(matrix, codes=torch.zeros_like(matrix.codes)).dequantized()
    return (replace(matrix, codes=torch.ones_like(matrix.codes)).dequantized() - step).double().abs().amax(dim=1)


@compiled
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_compiled_products_are_those_of_the_dequantized_matrix(name, shape):
    matrix = FORMATS[name](*shape)
    for tokens in ROWS:
        x = inputs(tokens, shape[1])
        assert_rounded_only(by_kernels(matrix, x), matrix, x)


@compiled
@pytest.mark.parametrize("name", FORMATS | ROUNDING)
def test_compiled_rows_are_the_dequantized_ones(name):
    matrix, lib = (FORMATS | ROUNDING)[name](37, 96), native.library()
    [[found]], kept = packed(lib, [[matrix]], torch.float32)
    row, wanted = torch.empty(96), matrix.dequantized()
    for index in range(37):
        lib.trilemma_row(ctypes.byref(found), ctypes.c_int64(index), ctypes.c_void_p(row.data_ptr()))
        torch.testing.assert_close(row, wanted[index], rtol=1e-6, atol=1e-6)
    assert kept


@compiled
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_fault_29_the_integer_kernel_really_runs(name, shape):
    """Its result is that of integers, and not that of the activations as they were."""
    matrix = ROUNDING[name](*shape)
    for tokens in ROWS:
        x = inputs(tokens, shape[1])
        found, integers = by_kernels(matrix, x), integer_product(x, matrix)
        torch.testing.assert_close(found, integers, rtol=1e-5, atol=1e-5 * integers.abs().max())
        rounding_error = (integers - exact(matrix, x)).abs().max()
        assert (found - integers).abs().max() < 1e-3 * rounding_error


def test_integer_sums_of_one_share_are_exact():
    """Activations and scales that are whole numbers: nothing is left to round."""
    matrix = ROUNDING["w8a8 32"](20, 96)
    matrix = replace(matrix, scale=torch.ones_like(matrix.scale))
    x = torch.randint(-127, 128, (7, 96), generator=torch.Generator().manual_seed(0)).float()
    x.view(7, 3, 32)[..., 0] = 127
    wanted = x.long() @ (matrix.codes.long() - 128).t()
    assert torch.equal(integer_product(x, matrix).long(), wanted)


@compiled
def test_compiled_integer_sums_of_one_share_are_exact():
    matrix = ROUNDING["w8a8 32"](20, 96)
    matrix = replace(matrix, scale=torch.ones_like(matrix.scale))
    x = torch.randint(-127, 128, (7, 96), generator=torch.Generator().manual_seed(0)).float()
    x.view(7, 3, 32)[..., 0] = 127
    assert torch.equal(by_kernels(matrix, x).long(), x.long() @ (matrix.codes.long() - 128).t())


@compiled
@pytest.mark.parametrize("name", ROUNDING)
def test_a_token_of_zeros_gives_zeros(name):
    matrix = ROUNDING[name](20, 96)
    x = torch.zeros(3, 96)
    assert torch.equal(by_kernels(matrix, x), torch.zeros(3, 20))
    assert torch.equal(PackedMatrix.of(matrix).product(x), torch.zeros(3, 20))


@compiled
@pytest.mark.parametrize("bits", [4, 6, 8])
def test_each_code_is_at_its_own_place(bits):
    """One input at a time against codes that are all different: neither nibbles nor columns change places."""
    depth = 48 if bits != 6 else 96
    matrix = symmetric(bits, depth)(33, depth)
    x = torch.eye(depth)
    torch.testing.assert_close(by_kernels(matrix, x), matrix.dequantized().t().contiguous(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", FORMATS | ROUNDING)
def test_torchs_products_are_those_of_the_dequantized_matrix_or_of_integers(name):
    matrix = (FORMATS | ROUNDING)[name](50, 96)
    x = inputs(5, 96)
    found = linear(x, PackedMatrix.of(matrix), torch.ones(50)) - 1
    wanted = integer_product(x, matrix).double() if name in ROUNDING else exact(matrix, x)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("bits", "share"), [(4, 0.5), (6, 0.75), (8, 1.0)])
def test_packed_codes_take_their_bits_and_come_back(bits, share):
    codes = torch.arange(2**bits, dtype=torch.uint8).repeat(3, 4)
    packed_codes = pack(codes, bits)
    assert packed_codes.numel() == share * codes.numel()
    assert torch.equal(unpack(packed_codes, bits, codes.shape[1]), codes)


def test_the_lower_nibble_is_the_earlier_code():
    assert pack(torch.tensor([[15, 0, 3, 8]], dtype=torch.uint8), 4).tolist() == [[15, 8 << 4 | 3]]


def test_parts_of_different_formats_are_multiplied_one_below_the_other():
    parts = (FORMATS["w4 group 32"](16, 96), FORMATS["w6"](8, 96), torch.randn(8, 96))
    x = inputs(3, 96)
    whole = torch.cat([part if isinstance(part, torch.Tensor) else part.dequantized() for part in parts])
    torch.testing.assert_close(linear(x, held(Joined(parts))), x @ whole.t(), rtol=1e-4, atol=1e-4)


@compiled
@pytest.mark.parametrize(
    ("matrix", "field"),
    [
        (symmetric(4, 12)(16, 96), "weight_group"),
        (symmetric(6, 24)(16, 96), "weight_group"),
        (replace(symmetric(8, None)(16, 96), activation_group=36), "activation_group"),
        (replace(symmetric(4, 96)(16, 96), activation_group=32), "activation_group"),
    ],
)
def test_what_no_kernel_has_a_form_for_is_refused(matrix, field):
    with pytest.raises(InputError, match=field):
        packed(native.library(), [[matrix]], torch.float32)
