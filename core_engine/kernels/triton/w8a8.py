"""Products of int8 with int8: activations are rounded on the way in, tensor cores add whole numbers in int32.

A token's activations are rounded as core_engine.quant.linear.rounded does, with a scale for each activation group: the
whole token, or 32 of it as this project's W8A8 has. Within a group sums are exact in int32. A group's sum becomes
float32 once, times the group's scale of the token, and is added up in float32; the weight's scale comes at the very
end, or with each group where a row has several. So groups of 32 cost a conversion and a multiplication for every 32
products: nothing while a step waits for its weights, but with many tokens about three times what the tensor cores
take for them, which is what one scale a token saves.

Codes are held as in w4a16.py: int8 [tiles, out, DOT], a tile being one step along the depth for all rows; scales
[groups, out]. Here too the weight is the left operand, and few tokens split the depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from core_engine.kernels.triton import tuning
from core_engine.kernels.triton.compiling import MainShape
from core_engine.kernels.triton.pointwise import merge_splits
from core_engine.kernels.triton.w4a16 import outputs, tiled
from core_engine.quant.matrix import QuantizedMatrix

DOTS = (128, 64, 32)  # columns of one tl.dot
MOST_DEPTH = 2**31 // (127 * 128)  # of an activation group, whose sum is an int32
GROUPS_AT_ONCE = 32  # activation groups that one program rounds
ROUND_BLOCK = 2048  # columns of a token that a program looks at together where the whole token has one scale


def supports(matrix: QuantizedMatrix) -> str | None:
    """None where a W8A8 can be made of the matrix, else why not."""
    share, depth = matrix.activation_group, matrix.shape[1]
    if share is None:
        return "its activations are not rounded: kernels/triton/w4a16.py"
    if matrix.bits != 8 or matrix.zero is not None or matrix.minimum is not None or matrix.scale_codes is not None:
        return "integer products take symmetric 8-bit codes with plain scales"
    if matrix.group % share or depth % share:
        return f"activation groups of {share} do not divide weight groups of {matrix.group}"
    if share not in DOTS and (share != depth or share % DOTS[-1] or share > MOST_DEPTH):
        return f"activation groups of {share}: not {DOTS}, nor a whole token of a multiple of {DOTS[-1]}"
    return None


@dataclass(frozen=True)
class W8A8:
    """A QuantizedMatrix whose activations are rounded, on a device, laid out as at the top of this file."""

    packed: torch.Tensor  # int8 [tiles, out, dot]
    scale: torch.Tensor  # float16 or float32 [groups, out]
    order: torch.Tensor | None  # int64 [depth]
    group: int
    activation_group: int
    shape: tuple[int, int]  # (out, depth)

    @classmethod
    def of(cls, matrix: QuantizedMatrix, device: torch.device) -> W8A8:
        """Packed on `device`; ValueError with what `supports` says."""
        share = matrix.activation_group
        if (why := supports(matrix)) is not None or share is None:
            raise ValueError(why)
        dot = next(dot for dot in DOTS if share % dot == 0)
        packed = (tiled(matrix.codes.to(device), dot) ^ 0x80).view(torch.int8)
        order = None if matrix.order is None else matrix.order.to(device)
        return cls(packed, matrix.scale.to(device).t().contiguous(), order, matrix.group, share, matrix.shape)

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor held."""
        return [part for part in (self.packed, self.scale, self.order) if part is not None]

    def product(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x [tokens, depth] W^T + bias [out] in x's dtype: [tokens, out], contiguous."""
        settings = tuning.config("w8a8", self.shape_for(x.shape[0]), tuning.name_of(x.device))
        return self.product_with(settings, x, bias)

    def shape_for(self, tokens: int) -> tuning.Shape:
        """What the table of settings is asked for."""
        return (tuning.bucket(tokens), *self.shape, self.packed.shape[2])

    def product_with(self, settings: tuning.Config, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """As `product`, with BLOCK_N, BLOCK_M, SPLITS, num_warps and num_stages given: what `tuning.tune` launches."""
        tokens, (columns, depth) = x.shape[0], self.shape
        out, parts = outputs(x, columns, settings["SPLITS"])
        if not tokens:
            return out
        rounded, scales = round_tokens(x, self.activation_group, self.order)
        blocks_m = triton.cdiv(tokens, settings["BLOCK_M"])
        grid = (blocks_m * triton.cdiv(columns, settings["BLOCK_N"]), settings["SPLITS"])
        _integer[grid](
            rounded, scales, self.packed, self.scale, bias if parts is None else None, out if parts is None else parts,
            tokens, columns, depth, len(self.packed),
            GROUP=self.group if self.scale.shape[0] > 1 else 0,
            SHARE=self.activation_group if self.activation_group < depth else 0, DOT=self.packed.shape[2], **settings,
        )  # fmt: skip
        if parts is not None:
            merge_splits(parts, bias, out)
        return out


def round_tokens(x: torch.Tensor, share: int, order: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """x [tokens, depth] as int8 [tokens, depth] and float32 scales [depth / share, tokens]; share: columns of a
    scale, a power of two or all of them. With `order` int64 [depth], column i is x's column order[i].

    To the nearest, ties to even; the same numbers as core_engine.quant.linear.rounded.
    """
    tokens, depth = x.shape
    rounded = x.new_empty(tokens, depth, dtype=torch.int8)
    scales = x.new_empty(depth // share, tokens, dtype=torch.float32)
    if share == depth:
        block = min(ROUND_BLOCK, triton.next_power_of_2(depth))
        _round_token[(tokens,)](x, order, rounded, scales, depth, x.stride(0), BLOCK=block, num_warps=4)
    else:
        grid = (tokens, triton.cdiv(depth // share, GROUPS_AT_ONCE))
        _round_groups[grid](
            x, order, rounded, scales, tokens, depth, x.stride(0), SHARE=share, GROUPS=GROUPS_AT_ONCE, num_warps=4
        )
    return rounded, scales


@triton.jit
def _nearest(x):
    """Whole numbers next to float32 x, ties to even, below 2**22: what is smaller than one falls off at 1.5 * 2**23."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _multiplier(largest):
    """127 / largest as torch divides, by a reciprocal; 0 where the largest magnitude counts as zero."""
    some = largest > 1e-30
    return tl.where(some, tl.div_rn(1.0 + tl.zeros_like(largest), tl.where(some, largest, 1.0)) * 127.0, 0.0)


@triton.jit
def _taken(x, order, places, inside):
    """x at `places`, or at order[places], in float32."""
    if order is not None:
        places = tl.load(order + places, mask=inside, other=0)
    return tl.load(x + places, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["tokens"])
def _round_groups(
    x, order, rounded, scales, tokens, depth, stride, SHARE: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0)
    groups = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    places = groups[:, None] * SHARE + tl.arange(0, SHARE)[None, :]
    inside = places < depth
    row = _taken(x + token.to(tl.int64) * stride, order, places, inside)
    largest = tl.max(tl.abs(row), axis=1)
    whole = _nearest(row * _multiplier(largest)[:, None])
    tl.store(rounded + token.to(tl.int64) * depth + places, whole.to(tl.int8), mask=inside)
    tl.store(scales + groups * tokens + token, tl.div_rn(largest, 127.0 + tl.zeros_like(largest)),
             mask=groups * SHARE < depth)  # fmt: skip


@triton.jit
def _round_token(x, order, rounded, scales, depth, stride, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    x += token.to(tl.int64) * stride
    most = tl.zeros([BLOCK], tl.float32)
    for first in range(0, depth, BLOCK):
        places = first + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.abs(_taken(x, order, places, places < depth)))
    largest = tl.max(most, axis=0)
    by = _multiplier(largest)
    for first in range(0, depth, BLOCK):
        places = first + tl.arange(0, BLOCK)
        whole = _nearest(_taken(x, order, places, places < depth) * by)
        tl.store(rounded + token.to(tl.int64) * depth + places, whole.to(tl.int8), mask=places < depth)
    tl.store(scales + token, tl.div_rn(largest, 127.0 + tl.zeros_like(largest)))


@triton.jit(do_not_specialize=["tokens"])
def _integer(
    x, scales, packed, scale, bias, out, tokens, columns, depth, tiles,
    GROUP: tl.constexpr, SHARE: tl.constexpr, DOT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """GROUP 0: one weight scale a row. SHARE 0: one activation scale a token, so that int32 adds up the whole depth;
    else DOT, so that every tile of the depth is an activation group."""
    blocks_m = tl.cdiv(tokens, BLOCK_M)
    rows = tl.program_id(0) // blocks_m * BLOCK_N + tl.arange(0, BLOCK_N)
    places = tl.program_id(0) % blocks_m * BLOCK_M + tl.arange(0, BLOCK_M)
    inside, wanted = rows < columns, places < tokens
    split = tl.program_id(1)
    first, last = split * tiles // SPLITS, (split + 1) * tiles // SPLITS
    within = tl.arange(0, DOT)
    codes_at = packed + first.to(tl.int64) * columns * DOT + (rows[:, None] * DOT + within[None, :])
    x_at = x + places[None, :].to(tl.int64) * depth + (first * DOT + within)[:, None]
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_N, BLOCK_M], tl.int32)
    for tile in range(first, last):
        codes = tl.load(codes_at, mask=inside[:, None], other=0)
        numbers = tl.load(x_at, mask=wanted[None, :], other=0)
        if SHARE == 0:
            sums = tl.dot(codes, numbers, sums, out_dtype=tl.int32)
        else:
            by = tl.load(scales + tile * tokens + places, mask=wanted, other=0.0)[None, :]
            if GROUP != 0:
                at = scale + tile * DOT // GROUP * columns + rows
                by = by * tl.load(at, mask=inside, other=0.0).to(tl.float32)[:, None]
            total += tl.dot(codes, numbers, out_dtype=tl.int32).to(tl.float32) * by
        codes_at += columns.to(tl.int64) * DOT
        x_at += DOT
    if SHARE == 0:
        total = sums.to(tl.float32) * tl.load(scales + places, mask=wanted, other=0.0)[None, :]
    if GROUP == 0:
        total *= tl.load(scale + rows, mask=inside, other=0.0).to(tl.float32)[:, None]
    if bias is not None:
        total += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)[:, None]
    out += split.to(tl.int64) * tokens * columns
    to = out + places[None, :].to(tl.int64) * columns + rows[:, None]
    tl.store(to, total.to(out.dtype.element_ty), mask=inside[:, None] & wanted[None, :])


def MAIN_SHAPES() -> list[MainShape]:
    """One scale a token and groups of 32, for few tokens (split or not) and prompts; the rounding kernels."""
    sizes = [
        ("1-16 tokens", {"BLOCK_N": 64, "BLOCK_M": 16, "SPLITS": 1}, 4, 4),
        ("1-16 tokens, split", {"BLOCK_N": 64, "BLOCK_M": 16, "SPLITS": 4}, 4, 4),
        ("33-64 tokens", {"BLOCK_N": 64, "BLOCK_M": 64, "SPLITS": 1}, 8, 4),
        ("more tokens", {"BLOCK_N": 128, "BLOCK_M": 64, "SPLITS": 1}, 8, 3),
    ]
    types = {"x": "*i8", "scales": "*fp32", "packed": "*i8", "scale": "*fp16", "bias": "*bf16"}
    whole = {"tokens": "i32", "columns": "i32:16", "depth": "i32:16", "tiles": "i32"}
    found = []
    for share, dot in ((0, 128), (32, 32)):
        for size, settings, warps, stages in sizes:
            split = settings["SPLITS"] > 1
            missing = {"bias": None} if split else {}
            signature = {name: kind for name, kind in types.items() if name not in missing}
            signature |= {"out": "*fp32" if split else "*bf16", **whole}
            constants = {**missing, "GROUP": 0, "SHARE": share, "DOT": dot, **settings}
            found.append(MainShape(f"w8a8 {share}, {size}", _integer, signature, constants, warps, stages))
    rounding = {"x": "*bf16", "rounded": "*i8", "scales": "*fp32", "depth": "i32:16", "stride": "i32:16"}
    groups = {"order": None, "SHARE": 32, "GROUPS": GROUPS_AT_ONCE}
    found.append(MainShape("round groups of 32", _round_groups, {**rounding, "tokens": "i32"}, groups))
    found.append(MainShape("round a token", _round_token, rounding, {"order": None, "BLOCK": ROUND_BLOCK}))
    return found
