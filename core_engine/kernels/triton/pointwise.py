"""What a decoder layer does to single tokens between its products: RMSNorm with the residual before it, SiLU x up, and
the sum of the parts that a product was split into. One launch each; rounds where the torch decoder rounds.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core_engine.kernels.triton.compiling import MainShape

LONGEST_ROW = 32768  # of a norm: it is held in registers, 64 numbers a thread at 16 warps
SILU_BLOCK = 1024
MERGE_BLOCK = 512


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor, residual: torch.Tensor | None = None
) -> None:
    """out [tokens, hidden] = weight [hidden] * (x / sqrt(mean(x^2) + eps)), rounded before and after the weight.

    With `residual` [tokens, hidden], of x's dtype, it becomes residual + x, rounded, and is what is normed. x may be
    out; elements of a token are neighbours in all of them. ValueError for rows longer than LONGEST_ROW.
    """
    tokens, hidden = x.shape
    if hidden > LONGEST_ROW:
        raise ValueError(f"rows of {hidden} are longer than the {LONGEST_ROW} that a norm holds")
    block = triton.next_power_of_2(hidden)
    if tokens:
        _rms_norm[(tokens,)](
            x, weight, out, residual, hidden, x.stride(0), out.stride(0), 0 if residual is None else residual.stride(0),
            eps, BLOCK=block, num_warps=_norm_warps(block),
        )  # fmt: skip


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """out [tokens, inner] = silu(gate) * up of gate_up [tokens, 2 inner], gate first; silu is rounded, as torch's."""
    tokens, inner = out.shape
    if tokens and inner:
        grid = (tokens, triton.cdiv(inner, SILU_BLOCK))
        _silu_mul[grid](gate_up, out, inner, gate_up.stride(0), out.stride(0), BLOCK=SILU_BLOCK, num_warps=4)


def merge_splits(partial: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """out [tokens, columns] = sum over splits of partial float32 [splits, tokens, columns], always in the same order,
    plus bias [columns]; out is contiguous."""
    splits, size = partial.shape[0], out.numel()
    grid = (triton.cdiv(size, MERGE_BLOCK),)
    _merge_splits[grid](partial, bias, out, size, out.shape[1], SPLITS=splits, BLOCK=MERGE_BLOCK, num_warps=4)


def _norm_warps(block: int) -> int:
    """8 numbers a thread, as wide loads want, from 1 to 16 warps."""
    return min(max(block // 256, 1), 16)


@triton.jit
def _rms_norm(x, weight, out, residual, hidden, x_stride, out_stride, residual_stride, eps, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    inside = places < hidden
    row = tl.load(x + token * x_stride + places, mask=inside, other=0.0)
    if residual is not None:
        at = residual + token * residual_stride + places
        row = (tl.load(at, mask=inside, other=0.0).to(tl.float32) + row.to(tl.float32)).to(row.dtype)
        tl.store(at, row, mask=inside)
    wide = row.to(tl.float32)
    by = 1 / tl.sqrt_rn(tl.sum(wide * wide, axis=0) / hidden + eps)
    normed = (wide * by).to(row.dtype).to(tl.float32)
    scaled = normed * tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * out_stride + places, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _silu_mul(gate_up, out, inner, stride, out_stride, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < inner
    gate = tl.load(gate_up + token * stride + places, mask=inside, other=0.0)
    up = tl.load(gate_up + token * stride + inner + places, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1 + tl.exp(-wide))).to(gate.dtype).to(tl.float32)
    tl.store(out + token * out_stride + places, (silu * up.to(tl.float32)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _merge_splits(partial, bias, out, size, columns, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial + split * size.to(tl.int64) + places, mask=inside, other=0.0)
    if bias is not None:
        total += tl.load(bias + places % columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=inside)


def MAIN_SHAPES() -> list[MainShape]:
    """Llama-3.2-1B, Qwen2.5-7B and Llama-3.1-8B in bfloat16."""
    strides = dict.fromkeys(("x_stride", "out_stride", "residual_stride"), "i32:16")
    norms = [
        MainShape(
            f"rms_norm {hidden}", _rms_norm,
            {"x": "*bf16", "weight": "*bf16", "out": "*bf16", "residual": "*bf16", "hidden": "i32:16", **strides,
             "eps": "fp32"},
            {"BLOCK": block}, num_warps=_norm_warps(block),
        )
        for hidden, block in ((2048, 2048), (3584, 4096), (8192, 8192))
    ]  # fmt: skip
    silu = {"gate_up": "*bf16", "out": "*bf16", "inner": "i32:16", "stride": "i32:16", "out_stride": "i32:16"}
    merge = {"partial": "*fp32", "bias": "*bf16", "out": "*bf16", "size": "i32:16", "columns": "i32:16"}
    return [
        *norms,
        MainShape("silu_mul", _silu_mul, silu, {"BLOCK": SILU_BLOCK}),
        MainShape("merge_splits 8", _merge_splits, merge, {"SPLITS": 8, "BLOCK": MERGE_BLOCK}),
    ]
