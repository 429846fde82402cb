"""GPTQ: columns are rounded one after another, and those still to come take up the error of each (second-order).

Frantar et al., 2022, arXiv:2210.17323. Columns with the largest inputs come first (act-order), while most others are
still free; groups are of columns in that order, so a matrix carries the `order` of its columns.
"""

from __future__ import annotations

import torch

from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import Grid, fit

DAMPING = 0.01  # of the mean of the Hessian's diagonal, as in the paper


def gptq(weight: torch.Tensor, hessian: torch.Tensor, bits: int, group: int, symmetric: bool) -> QuantizedMatrix:
    """Weight [out, depth] rounded so that its outputs change least; hessian [depth, depth] is X^T X of its inputs.

    `group` divides depth. Rows do not depend on each other: matrices of one input may lie one below the other.
    """
    out, depth = weight.shape
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True)
    # A column is used at a time, so columns are rows here: strided ones took three times as long.
    left = weight.float()[:, order].t().contiguous()
    factor = _inverse_factor(hessian[order][:, order])
    codes = torch.empty(depth, out, dtype=torch.uint8)
    scales, zeros = [], []
    for start in range(0, depth, group):
        end = start + group
        grid = fit(left[start:end].t().contiguous(), bits, group, symmetric)
        scales.append(grid.scale)
        zeros.append(grid.zero)
        errors = _round_group(left[start:end], grid, factor[start:end, start:end], codes[start:end])
        left[end:] -= factor[start:end, end:].t() @ errors
    zero = None if symmetric else torch.cat([part for part in zeros if part is not None], dim=1)
    order, codes = _sorted_within_groups(order, codes.t(), group)
    return QuantizedMatrix(bits, group, codes, torch.cat(scales, dim=1), zero=zero, order=order)


def _round_group(left: torch.Tensor, grid: Grid, factor: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Round the columns of one group in turn, into codes; returns their errors [group, out] as later groups take them.

    left [group, out], a row a column of the weight, is used up; factor [group, group] is the group's part of the
    inverse Hessian's upper factor.
    """
    errors, rounded = torch.empty_like(left), torch.empty_like(left)
    scale = grid.scale.float()[:, 0]
    step = torch.where(scale == 0, 1.0, scale)
    middle = 2.0 ** (grid.bits - 1) if grid.zero is None else grid.zero.float()[:, 0]
    pivots = factor.diagonal().tolist()
    for column, pivot in enumerate(pivots):
        wanted, code, error = left[column], rounded[column], errors[column]
        torch.div(wanted, step, out=code)
        code.round_().add_(middle).clamp_(0, 2**grid.bits - 1)
        torch.sub(code, middle, out=error)
        error.mul_(scale).neg_().add_(wanted).div_(pivot)
        left[column + 1 :].addr_(factor[column, column + 1 :], error, alpha=-1)
    codes.copy_(rounded)
    return errors


def _inverse_factor(hessian: torch.Tensor) -> torch.Tensor:
    """float32 U, upper, with U^T U the inverse of the damped Hessian. Factored in float64: inputs may be collinear.

    Inputs that never occurred get the mean of the diagonal as well: their weights are then rounded to nearest.
    """
    exact = hessian.double()
    diagonal = exact.diagonal()
    mean = diagonal.mean()
    if mean == 0:
        return torch.eye(len(hessian))
    damped = exact + torch.diag(torch.where(diagonal == 0, mean, DAMPING * mean))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def _sorted_within_groups(order: torch.Tensor, codes: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns of each group in ascending order, which changes no product: one form for what is the same matrix."""
    places = torch.cat([start + torch.argsort(order[start : start + group]) for start in range(0, len(order), group)])
    return order[places], codes[:, places].contiguous()
