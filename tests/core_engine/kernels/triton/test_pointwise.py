"""Norm, gated activation and sums of splits in the interpreter, against torch as the decoder uses it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from core_engine.kernels.triton.pointwise import LONGEST_ROW, merge_splits, rms_norm, silu_mul

EPS = 1e-5
# One rounding to the format after float32 sums in another order.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def randoms(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def normed(x, weight):
    """As Decoder._norm."""
    return weight * F.rms_norm(x.float(), (x.shape[-1],), eps=EPS).to(x.dtype)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (33, 576), (2, 3584)], ids=str)
def test_a_norm_is_that_of_the_decoder(shape, dtype):
    x, weight = randoms(*shape, dtype=dtype) * 3, randoms(shape[1], dtype=dtype, seed=1)
    out = torch.full_like(x, torch.nan)
    rms_norm(x, weight, EPS, out)
    torch.testing.assert_close(out, normed(x, weight), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@DTYPES
def test_the_residual_takes_x_first_and_is_rounded_before_it_is_normed(dtype):
    x, weight = randoms(5, 100, dtype=dtype), randoms(100, dtype=dtype, seed=1)
    residual = randoms(5, 100, dtype=dtype, seed=2) * 50
    expected = residual + x
    out = torch.empty_like(x)
    rms_norm(x, weight, EPS, out, residual)
    assert torch.equal(residual, expected)
    torch.testing.assert_close(out, normed(expected, weight), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_eps_counts_where_a_token_is_nearly_zero():
    x, weight = torch.full((1, 8), 1e-4), torch.ones(8)
    out = torch.empty_like(x)
    rms_norm(x, weight, EPS, out)
    torch.testing.assert_close(out, normed(x, weight), rtol=1e-6, atol=0)
    assert out[0, 0] < 0.05


def test_rows_of_a_wider_tensor_and_the_input_as_output():
    wide, weight = randoms(4, 96), randoms(32, seed=1)
    x, before = wide[:, 32:64], wide.clone()
    rms_norm(x, weight, EPS, x)
    torch.testing.assert_close(wide[:, 32:64], normed(before[:, 32:64], weight))
    assert torch.equal(wide[:, :32], before[:, :32]) and torch.equal(wide[:, 64:], before[:, 64:])


def test_no_tokens_and_rows_that_are_too_long():
    rms_norm(torch.empty(0, 8), torch.ones(8), EPS, torch.empty(0, 8))
    silu_mul(torch.empty(0, 16), torch.empty(0, 8))
    with pytest.raises(ValueError, match=str(LONGEST_ROW)):
        rms_norm(torch.empty(1, LONGEST_ROW + 1), torch.empty(LONGEST_ROW + 1), EPS, torch.empty(1, LONGEST_ROW + 1))


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (2, 1025)], ids=str)
def test_gated_activation_is_torchs(shape, dtype):
    gate_up = randoms(shape[0], 2 * shape[1], dtype=dtype) * 4
    out = torch.full(shape, torch.nan, dtype=dtype)
    silu_mul(gate_up, out)
    gate, up = gate_up.chunk(2, dim=-1)
    torch.testing.assert_close(out, F.silu(gate) * up, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_gate_of_large_magnitude_gives_no_nan():
    gate_up = torch.tensor([[-1e4, 1e4, 3.0, 3.0]])
    out = torch.empty(1, 2)
    silu_mul(gate_up, out)
    assert out.tolist() == [[0.0, 3e4]]


@DTYPES
@pytest.mark.parametrize("biased", [True, False])
def test_splits_are_added_up_and_rounded_once(biased, dtype):
    partial, bias = randoms(3, 7, 90), randoms(90, dtype=dtype, seed=1) if biased else None
    out = torch.full((7, 90), torch.nan, dtype=dtype)
    merge_splits(partial, bias, out)
    expected = partial.sum(0) + (bias.float() if biased else 0)
    torch.testing.assert_close(out, expected.to(dtype), rtol=1e-6 if dtype is torch.float32 else 1e-3, atol=1e-6)
