"""Products with weights in 4 or 8 bits and activations as they are: codes become numbers in registers, tl.dot adds up.

Codes on the device, uint8 [tiles, out, DOT]: a tile is what one step along the depth reads, for all rows, so that the
rows a program reads lie one after another in memory. At 8 bits a tile is DOT columns. At 4 bits it is 2 DOT: byte i of
a row has column i of the tile in its low nibble and column DOT + i in its high one, so the two nibbles of the bytes
read are two whole operands and nothing is interleaved. Scales, zero points and minima are [groups, out]. Nothing of
the weight is held twice.

The weight is the left operand, rows of the weight times few tokens: it reaches the tensor cores from registers, and one
token costs a tile of 16 and not of 64. Codes less their zero point are whole numbers, exact in every activation
format; their sums over a group are float32 and are scaled in float32. (With minima the number itself is rounded to the
activations' format, as the torch product does.) Small batches split the depth too, so that the device is full where
`out` is small; parts are added in a second launch, in a fixed order: results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl

from core_engine.kernels.triton import tuning
from core_engine.kernels.triton.compiling import MainShape
from core_engine.kernels.triton.pointwise import merge_splits
from core_engine.quant.matrix import QuantizedMatrix

DOTS = (64, 32, 16)  # columns of one tl.dot; the largest that fits the depth and the groups


def supports(matrix: QuantizedMatrix) -> str | None:
    """None where a WeightOnly can be made of the matrix, else why not."""
    if matrix.activation_group is not None:
        return "its activations are rounded as well: kernels/triton/w8a8.py"
    if matrix.bits not in (4, 8):
        return f"codes of {matrix.bits} bits have no kernel"
    if matrix.scale_codes is not None:
        return "nested scales have no kernel"
    if _dot(matrix) is None:
        return f"groups of {matrix.group} of {matrix.shape[1]} columns do not divide into tiles of {DOTS[-1]}"
    return None


def _dot(matrix: QuantizedMatrix) -> int | None:
    depth = matrix.shape[1]
    return next((dot for dot in DOTS if matrix.group % dot == 0 and depth % (dot * 8 // matrix.bits) == 0), None)


def joined(parts: Sequence[QuantizedMatrix]) -> QuantizedMatrix | None:
    """Matrices of one input, one below the other, as one of them all; None where their forms differ."""
    first, *others = parts
    for part in others:
        alike = all(
            getattr(part, name) == getattr(first, name) for name in ("bits", "group", "activation_group")
        ) and all((getattr(part, name) is None) == (getattr(first, name) is None) for name in OPTIONAL)
        if not alike or part.shape[1] != first.shape[1] or not _same_order(part.order, first.order):
            return None
    stacked: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in ("codes", "scale", *OPTIONAL[:-1])
        if getattr(first, name) is not None
    }
    return replace(first, **stacked)


OPTIONAL = ("zero", "minimum", "scale_codes", "minimum_codes", "order")


def _same_order(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def tiled(codes: torch.Tensor, width: int) -> torch.Tensor:
    """uint8 [out, depth] as [depth / width, out, width], contiguous."""
    out, depth = codes.shape
    return codes.view(out, depth // width, width).transpose(0, 1).contiguous()


@dataclass(frozen=True)
class WeightOnly:
    """A QuantizedMatrix on a device, laid out as at the top of this file."""

    packed: torch.Tensor  # uint8 [tiles, out, dot]
    scale: torch.Tensor  # float16 or float32 [groups, out]
    zero: torch.Tensor | None  # uint8 [groups, out]
    minimum: torch.Tensor | None  # float16 [groups, out]
    order: torch.Tensor | None  # int64 [depth]
    bits: int
    group: int
    shape: tuple[int, int]  # (out, depth)

    @classmethod
    def of(cls, matrix: QuantizedMatrix, device: torch.device) -> WeightOnly:
        """Packed on `device`; ValueError with what `supports` says."""
        why = supports(matrix)
        dot = _dot(matrix)
        if why is not None or dot is None:
            raise ValueError(why)
        packed = tiled(matrix.codes.to(device), dot * 8 // matrix.bits)
        if matrix.bits == 4:
            packed = packed[..., :dot] | packed[..., dot:] << 4

        def turned(numbers: torch.Tensor | None) -> torch.Tensor | None:
            return None if numbers is None else numbers.to(device).t().contiguous()

        scale = matrix.scale.to(device).t().contiguous()
        order = None if matrix.order is None else matrix.order.to(device)
        return cls(
            packed, scale, turned(matrix.zero), turned(matrix.minimum), order, matrix.bits, matrix.group, matrix.shape
        )

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor held."""
        return [part for part in (self.packed, self.scale, self.zero, self.minimum, self.order) if part is not None]

    def rows(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows `ids` of W, [len(ids), depth], in `dtype`: what a tied embedding looks up."""
        codes = self.packed[:, ids]
        if self.bits == 4:
            codes = torch.cat([codes & 15, codes >> 4], dim=-1)

        def of(numbers: torch.Tensor | None) -> torch.Tensor | None:
            return None if numbers is None else numbers[:, ids].t()

        flat = codes.transpose(0, 1).reshape(len(ids), self.shape[1])
        matrix = QuantizedMatrix(
            self.bits, self.group, flat, self.scale[:, ids].t(), of(self.zero), of(self.minimum), order=self.order
        )
        return matrix.dequantized().to(dtype)

    def product(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x [tokens, depth] W^T + bias [out] in x's dtype (float32, float16 or bfloat16): [tokens, out], contiguous."""
        kernel = "w4a16" if self.bits == 4 else "w8a16"
        settings = tuning.config(kernel, self.shape_for(x.shape[0]), tuning.name_of(x.device))
        return self.product_with(settings, x, bias)

    def shape_for(self, tokens: int) -> tuning.Shape:
        """What the table of settings is asked for."""
        return (tuning.bucket(tokens), *self.shape, self.packed.shape[2])

    def product_with(self, settings: tuning.Config, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """As `product`, with BLOCK_N, BLOCK_M, SPLITS, num_warps and num_stages given: what `tuning.tune` launches."""
        tokens, (columns, _), dot = x.shape[0], self.shape, self.packed.shape[2]
        x = (x if self.order is None else x.index_select(1, self.order)).contiguous()
        out, parts = outputs(x, columns, settings["SPLITS"])
        if not tokens:
            return out
        blocks_m = triton.cdiv(tokens, settings["BLOCK_M"])
        grid = (blocks_m * triton.cdiv(columns, settings["BLOCK_N"]), settings["SPLITS"])
        _weight_only[grid](
            x, self.packed, self.scale, self.zero, self.minimum, bias if parts is None else None,
            out if parts is None else parts, tokens, columns, x.shape[1], len(self.packed),
            GROUP=self.group if self.scale.shape[0] > 1 else 0, BITS=self.bits, DOT=dot, **settings,
        )  # fmt: skip
        if parts is not None:
            merge_splits(parts, bias, out)
        return out


def outputs(x: torch.Tensor, columns: int, splits: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a product of x [tokens, depth] writes: [tokens, columns] in x's dtype, and, where it is split, float32
    [splits, tokens, columns] before it."""
    out = x.new_empty(x.shape[0], columns)
    if splits == 1:
        return out, None
    return out, x.new_empty(splits, *out.shape, dtype=torch.float32)


@triton.jit
def numbers(codes, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """uint8 codes as DTYPE, each plus `offset_of`. A code's bits below an exponent are a number without a conversion:
    1024 + code in float16, 128 + code in bfloat16."""
    if tl.float16 == DTYPE:
        found = (codes.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True)
    elif tl.bfloat16 == DTYPE:
        if BITS == 4:
            found = (codes.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True)
        else:  # bfloat16 has no room for 8 bits below the exponent, but a fast way from int8
            found = (codes ^ 128).to(tl.int8, bitcast=True).to(tl.bfloat16)
    else:
        found = codes.to(DTYPE)
    return found


@triton.constexpr_function
def offset_of(DTYPE, BITS):
    """What `numbers` adds to a code."""
    if tl.float16 == DTYPE:
        return 1024
    if tl.bfloat16 == DTYPE:
        return 128 if BITS == 4 else -128
    return 0


@triton.jit
def _operand(codes, at, inside, scale, zero, minimum, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """codes [BLOCK_N, DOT] of the group whose numbers begin at `at` [BLOCK_N], as what is multiplied."""
    plain = numbers(codes, DTYPE, BITS)
    OFFSET: tl.constexpr = offset_of(DTYPE, BITS)
    if minimum is not None:
        steps = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
        least = tl.load(minimum + at, mask=inside, other=0.0).to(tl.float32)
        return ((plain.to(tl.float32) - OFFSET) * steps[:, None] + least[:, None]).to(DTYPE)
    if zero is not None:
        middle = tl.load(zero + at, mask=inside, other=0).to(tl.float32) + OFFSET
        return plain - middle.to(DTYPE)[:, None]
    MIDDLE: tl.constexpr = OFFSET + 2 ** (BITS - 1)
    if MIDDLE == 0:
        return plain
    return plain - tl.full([1, 1], MIDDLE, DTYPE)


@triton.jit(do_not_specialize=["tokens"])
def _weight_only(
    x, packed, scale, zero, minimum, bias, out, tokens, columns, depth, tiles,
    GROUP: tl.constexpr, BITS: tl.constexpr, DOT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """GROUP 0: one group a row. Programs of the same rows and other tokens are neighbours: they read the same codes."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    TILE: tl.constexpr = DOT * 8 // BITS
    blocks_m = tl.cdiv(tokens, BLOCK_M)
    rows = tl.program_id(0) // blocks_m * BLOCK_N + tl.arange(0, BLOCK_N)
    places = tl.program_id(0) % blocks_m * BLOCK_M + tl.arange(0, BLOCK_M)
    inside, wanted = rows < columns, places < tokens
    split = tl.program_id(1)
    first, last = split * tiles // SPLITS, (split + 1) * tiles // SPLITS
    within = tl.arange(0, DOT)
    codes_at = packed + first.to(tl.int64) * columns * DOT + (rows[:, None] * DOT + within[None, :])
    x_at = x + places[None, :].to(tl.int64) * depth + (first * TILE + within)[:, None]
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for tile in range(first, last):
        codes = tl.load(codes_at, mask=inside[:, None], other=0)
        low_x = tl.load(x_at, mask=wanted[None, :], other=0.0)
        low = codes & 15 if BITS == 4 else codes
        group = 0 if GROUP == 0 else tile * TILE // GROUP
        at = group * columns + rows
        weight = _operand(low, at, inside, scale, zero, minimum, DTYPE, BITS)
        SCALED: tl.constexpr = GROUP == 0 or minimum is not None  # outside of the loop, or in the operand
        if SCALED:
            total = tl.dot(weight, low_x, total, input_precision="ieee")
        else:
            part = tl.dot(weight, low_x, input_precision="ieee")
        if BITS == 4:
            high_x = tl.load(x_at + DOT, mask=wanted[None, :], other=0.0)
            NEXT: tl.constexpr = GROUP != 0 and GROUP % TILE != 0  # the high nibbles may be of another group
            if NEXT:
                if not SCALED:
                    total += part * tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)[:, None]
                at = (tile * TILE + DOT) // GROUP * columns + rows
            weight = _operand(codes >> 4, at, inside, scale, zero, minimum, DTYPE, BITS)
            if SCALED:
                total = tl.dot(weight, high_x, total, input_precision="ieee")
            elif NEXT:
                part = tl.dot(weight, high_x, input_precision="ieee")
            else:
                part = tl.dot(weight, high_x, part, input_precision="ieee")
        if not SCALED:
            total += part * tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)[:, None]
        codes_at += columns.to(tl.int64) * DOT
        x_at += TILE
    if GROUP == 0 and minimum is None:
        total *= tl.load(scale + rows, mask=inside, other=0.0).to(tl.float32)[:, None]
    if bias is not None:
        total += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)[:, None]
    out += split.to(tl.int64) * tokens * columns
    to = out + places[None, :].to(tl.int64) * columns + rows[:, None]
    tl.store(to, total.to(out.dtype.element_ty), mask=inside[:, None] & wanted[None, :])


def MAIN_SHAPES() -> list[MainShape]:
    """One token, 16 and 64 tokens split or not, and prompts, in the forms that are run most, in bfloat16."""
    few = {"BLOCK_N": 64, "BLOCK_M": 16}
    sizes = [
        ("1-16 tokens", {**few, "SPLITS": 1}, 4, 4),
        ("1-16 tokens, split", {**few, "SPLITS": 4}, 4, 4),
        ("33-64 tokens", {"BLOCK_N": 64, "BLOCK_M": 64, "SPLITS": 1}, 8, 4),
        ("more tokens", {"BLOCK_N": 128, "BLOCK_M": 64, "SPLITS": 1}, 8, 3),
    ]
    forms = [  # name, bits, group, columns of a dot, optional arrays
        ("w4 128", 4, 128, 64, ()), ("w4 zero 128", 4, 128, 64, ("zero",)), ("w4 zero 32", 4, 32, 32, ("zero",)),
        ("w4 minimum 32", 4, 32, 32, ("minimum",)), ("w8 a row", 8, 0, 64, ()), ("w8 32", 8, 32, 32, ()),
    ]  # fmt: skip
    types = {"x": "*bf16", "packed": "*u8", "scale": "*fp16", "zero": "*u8", "minimum": "*fp16", "bias": "*bf16"}
    found = []
    for form, bits, group, dot, present in forms:
        for size, settings, warps, stages in sizes:
            split = settings["SPLITS"] > 1
            missing = {name: None for name in ("zero", "minimum") if name not in present}
            missing |= {"bias": None} if split else {}
            signature = {name: kind for name, kind in types.items() if name not in missing}
            signature |= {"out": "*fp32" if split else "*bf16", "tokens": "i32"}
            signature |= {"columns": "i32:16", "depth": "i32:16", "tiles": "i32"}
            constants = {**missing, "GROUP": group, "BITS": bits, "DOT": dot, **settings}
            found.append(MainShape(f"{form}, {size}", _weight_only, signature, constants, warps, stages))
    return found
