"""RTN, AWQ, GPTQ and SmoothQuant on tensors where each algorithm's own claim must hold, against float64."""

from __future__ import annotations

import pytest
import torch

from core_engine.quant.awq import Levels, clipped, input_scales, output_error
from core_engine.quant.calibrate import InputSums
from core_engine.quant.gptq import gptq
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import fit, round_to_nearest
from core_engine.quant.smoothquant import smoothing_scales

OUT, DEPTH, TOKENS, GROUP = 96, 128, 2000, 32


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact_error(weight: torch.Tensor, rounded: torch.Tensor, x: torch.Tensor) -> float:
    """Squared error of the products of x [tokens, depth], in float64."""
    return float(((x.double() @ (rounded - weight).double().t()) ** 2).sum())


def outlier_inputs() -> torch.Tensor:
    """Independent inputs of which four are 30 times the others."""
    x = random(TOKENS, DEPTH, seed=1)
    x[:, [3, 40, 77, 120]] *= 30
    return x


def correlated_inputs() -> torch.Tensor:
    """Inputs that mix a quarter as many causes, and a little noise."""
    return random(TOKENS, DEPTH // 4, seed=2) @ random(DEPTH // 4, DEPTH, seed=3) + 0.1 * random(TOKENS, DEPTH, seed=4)


# ---- round to nearest


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_no_weight_is_further_from_its_level_than_half_a_step(bits: int, symmetric: bool) -> None:
    weight = random(OUT, DEPTH)
    matrix = round_to_nearest(weight, bits, GROUP, symmetric)
    step = matrix.scale.double().repeat_interleave(GROUP, dim=1)
    away = (matrix.dequantized().double() - weight.double()).abs()
    slack = 1.01 if symmetric else 1.2  # scales are float16; a zero point is rounded as well
    assert bool((away <= slack * step / 2).all())


@pytest.mark.parametrize("symmetric", [True, False])
def test_levels_that_exist_are_kept_exactly(symmetric: bool) -> None:
    codes = torch.arange(16).repeat(4, 2)
    zero = 8 if symmetric else 5
    weight = (codes - zero) * 0.25
    matrix = round_to_nearest(weight, 4, 16, symmetric)
    if symmetric:  # the extreme is -8 steps, and the scale takes it for 7.5
        assert float(matrix.scale[0, 0]) == pytest.approx(2 / 7.5, rel=1e-3)
    else:
        assert torch.equal(matrix.dequantized(), weight)


@pytest.mark.parametrize("low", [True, False])
def test_weights_of_one_sign_have_the_zero_point_at_an_end(low: bool) -> None:
    weight = random(8, DEPTH).abs() + 0.1
    grid = fit(weight if low else -weight, 4, GROUP, symmetric=False)
    assert grid.zero is not None and bool((grid.zero == (0 if low else 15)).all())


def test_a_group_of_zeros_and_one_too_small_for_float16_stay_zero() -> None:
    weight = torch.zeros(2, 64)
    weight[1] = 1e-12
    for symmetric in (True, False):
        assert torch.equal(round_to_nearest(weight, 4, 32, symmetric).dequantized(), torch.zeros(2, 64))


def test_8_bits_never_use_the_code_that_has_no_opposite() -> None:
    assert int(round_to_nearest(random(OUT, DEPTH), 8, DEPTH, True).codes.min()) >= 1


def test_weights_of_any_size_give_finite_numbers() -> None:
    matrix = round_to_nearest(random(4, 32) * 1e30, 4, 32, True)
    assert bool(matrix.dequantized().isfinite().all())


# ---- AWQ


@pytest.mark.parametrize("symmetric", [True, False])
def test_awq_beats_rounding_where_some_inputs_are_large(symmetric: bool) -> None:
    weight, x = random(OUT, DEPTH), outlier_inputs()
    sums, levels = InputSums.of(x), Levels(4, GROUP, symmetric)
    scales, alpha = input_scales(weight, sums.hessian, sums.mean_abs, levels)
    scaled = round_to_nearest(weight * scales, 4, GROUP, symmetric).dequantized() / scales
    plain = round_to_nearest(weight, 4, GROUP, symmetric).dequantized()
    assert alpha > 0
    assert exact_error(weight, scaled, x) < 0.7 * exact_error(weight, plain, x)


def test_awq_leaves_inputs_of_one_size_alone() -> None:
    weight, x = random(OUT, DEPTH), random(TOKENS, DEPTH, seed=5)
    sums, levels = InputSums.of(x), Levels(4, GROUP, True)
    scales, _ = input_scales(weight, sums.hessian, sums.mean_abs, levels)
    assert float(scales.max() / scales.min()) < 1.2


def test_a_clip_never_makes_a_groups_own_products_worse_and_helps_with_an_outlier_weight() -> None:
    weight = random(OUT, DEPTH)
    weight[:, ::GROUP] *= 5
    levels, x = Levels(4, GROUP, True), random(TOKENS, DEPTH, seed=6)
    hessian = InputSums.of(x).hessian
    ours, plain = clipped(weight, hessian, levels).dequantized(), round_to_nearest(weight, 4, GROUP, True).dequantized()
    for start in range(0, DEPTH, GROUP):
        part = slice(start, start + GROUP)
        before, after = (exact_error(weight[:, part], w[:, part], x[:, part]) for w in (plain, ours))
        assert after <= before * (1 + 1e-5)
    assert exact_error(weight, ours, x) < 0.98 * exact_error(weight, plain, x)


def test_the_error_from_sums_is_the_error_of_the_products() -> None:
    weight, x = random(OUT, DEPTH), correlated_inputs()
    rounded = round_to_nearest(weight, 4, GROUP, True).dequantized()
    assert output_error(rounded - weight, InputSums.of(x).hessian) == pytest.approx(
        exact_error(weight, rounded, x), 1e-3
    )


# ---- GPTQ


def gptq_in_float64(weight: torch.Tensor, hessian: torch.Tensor, order: torch.Tensor, matrix: QuantizedMatrix):
    """The method as the paper writes it, column by column with the whole inverse, on the grid that `matrix` has."""
    exact = hessian.double()
    exact = exact + 0.01 * exact.diagonal().mean() * torch.eye(len(exact), dtype=torch.float64)
    inverse = torch.linalg.inv(exact[order][:, order])
    left = weight.double()[:, order]
    values = torch.empty_like(left)
    for column in range(len(order)):
        scale = matrix.scale.double()[:, column // matrix.group]
        code = ((left[:, column] / scale).round() + 8).clamp(0, 15)
        values[:, column] = (code - 8) * scale
        error = (left[:, column] - values[:, column]) / inverse[column, column]
        left -= torch.outer(error, inverse[column])
        inverse = inverse - torch.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    plain = torch.empty_like(values)
    plain[:, order] = values
    return plain


def test_gptq_is_the_papers_method() -> None:
    weight, x = random(24, 64), correlated_inputs()[:, :64]
    hessian = InputSums.of(x).hessian
    matrix = gptq(weight, hessian, 4, GROUP, True)
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True)
    same = matrix.dequantized().double() - gptq_in_float64(weight, hessian, order, matrix)
    assert float((same.abs() < 1e-6).double().mean()) > 0.97  # a float32 tie goes the other way now and then


@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_beats_rounding_where_inputs_are_correlated(symmetric: bool) -> None:
    weight, x = random(OUT, DEPTH), correlated_inputs()
    plain = round_to_nearest(weight, 4, GROUP, symmetric).dequantized()
    ours = gptq(weight, InputSums.of(x).hessian, 4, GROUP, symmetric).dequantized()
    assert exact_error(weight, ours, x) < 0.5 * exact_error(weight, plain, x)


def test_act_order_takes_large_inputs_first_and_the_order_is_a_permutation() -> None:
    x = outlier_inputs()
    matrix = gptq(random(OUT, DEPTH), InputSums.of(x).hessian, 4, GROUP, True)
    assert matrix.order is not None
    assert torch.equal(matrix.order.sort().values, torch.arange(DEPTH))
    assert set(matrix.order[:GROUP].tolist()) >= {3, 40, 77, 120}
    assert all(bool((part.diff() > 0).all()) for part in matrix.order.split(GROUP))


def test_inputs_that_never_occur_are_rounded_to_nearest() -> None:
    weight = random(OUT, DEPTH)
    values = gptq(weight, torch.zeros(DEPTH, DEPTH), 4, GROUP, True).dequantized()
    assert torch.equal(values, round_to_nearest(weight, 4, GROUP, True).dequantized())
    x = correlated_inputs()
    x[:, 5] = 0
    assert bool(gptq(weight, InputSums.of(x).hessian, 4, GROUP, True).dequantized().isfinite().all())


def test_the_same_inputs_give_the_same_codes() -> None:
    weight, hessian = random(OUT, DEPTH), InputSums.of(correlated_inputs()).hessian
    first, second = (gptq(weight, hessian, 4, GROUP, False) for _ in range(2))
    assert torch.equal(first.codes, second.codes) and torch.equal(first.scale, second.scale)


# ---- SmoothQuant


def rounded_per_token(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round() * scale


def test_smoothing_lowers_the_error_of_int8_tokens_with_outlier_inputs() -> None:
    weight, x = random(OUT, DEPTH), outlier_inputs()
    scales = smoothing_scales(weight, x.abs().amax(0), 0.5)
    exact = x.double() @ weight.double().t()
    errors = []
    for factor in (torch.ones(DEPTH), scales):
        product = rounded_per_token(x / factor) @ round_to_nearest(weight * factor, 8, DEPTH, True).dequantized().t()
        errors.append(float(((product.double() - exact) ** 2).mean()))
    assert errors[1] < 0.3 * errors[0]


def test_the_strength_decides_who_takes_the_range() -> None:
    weight, largest = random(OUT, DEPTH), outlier_inputs().abs().amax(0)
    flat = largest / smoothing_scales(weight, largest, 1.0)
    assert float(flat.max() / flat.min()) == pytest.approx(1)
    columns = (weight * smoothing_scales(weight, largest, 0.0)).abs().amax(0)
    assert float(columns.max() / columns.min()) == pytest.approx(1)
    assert float(smoothing_scales(weight, torch.zeros(DEPTH), 0.5).unique()) == 1
