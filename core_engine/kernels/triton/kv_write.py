"""What a step does with its new keys and values: one kernel from the projections to the cache (query and key norms,
rotary positions, the write), and one that quantizes the blocks that have become full.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from core_engine.kernels.triton.compiling import MainShape
from core_engine.kernels.triton.kv_read import PARTS, QuantizedMemory, head_places, padded_part, readable
from core_engine.kernels.triton.rows import RowTable
from core_engine.kv.cache import QuantizedLayer

HEADS_A_PROGRAM = 4  # of one token: a step of one token of 32 + 2 x 8 heads is 12 programs
MOST_ELEMENTS = 32_768  # of a block's keys in one head, which a program holds in registers
ROUNDING = tl.constexpr(12_582_912.0)  # 1.5 * 2^23: added to a small float32, it leaves a whole number, ties to even
MOST_FP8 = tl.constexpr(448.0)
MOST_HALF = tl.constexpr(65_504.0)


@triton.jit
def _rounded(x):
    """To the nearest whole number, ties to even, for |x| < 2^22."""
    return (x + ROUNDING) - ROUNDING


@triton.jit
def _to_fp8(x):
    """Bytes in e4m3 of float32, to the nearest, ties to even; what is too large becomes the largest."""
    size = tl.minimum(tl.abs(x), MOST_FP8)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    tiny = _rounded(size * 512.0).to(tl.int32)  # under 2^-6 numbers are 2^-9 apart
    sign = tl.where(x < 0, 128, 0)
    return (tl.where(size < 0.015625, tiny, normal) | sign).to(tl.uint8)


@triton.jit
def _store(at, x, mask, FP8: tl.constexpr):
    if FP8:
        tl.store(at, _to_fp8(x), mask=mask)
    else:
        tl.store(at, x.to(at.dtype.element_ty), mask=mask)


@triton.jit
def _store_heads(side, at, low, high, pair, mask, HALF: tl.constexpr, FP8: tl.constexpr):
    at = side + at[:, None] + pair[None, :]
    _store(at, low, mask, FP8)
    _store(at + HALF, high, mask, FP8)


@triton.jit
def rotate_kernel(
    qkv, cos, sin, query, keys, values, slots, query_norm, key_norm, eps,
    qkv_token, cos_token, query_token, query_head, stride_block, stride_token, stride_head,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TOGETHER: tl.constexpr, NORM: tl.constexpr, SLOTS: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """Grid (tokens, groups of TOGETHER heads). Arithmetic is float32, rounded once when it is stored; but normed heads
    are rounded before the weight too, as the decoder's norm does."""
    token = tl.program_id(0).to(tl.int64)
    slot = token
    if SLOTS:
        slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    HALF: tl.constexpr = HEAD_DIM // 2
    pair = tl.arange(0, HALF_PADDED)
    head = tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER)
    some = pair < HALF
    mask = (head < HEADS + 2 * KV_HEADS)[:, None] & some[None, :]
    at = qkv + token * qkv_token + head[:, None] * HEAD_DIM + pair[None, :]
    low = tl.load(at, mask=mask, other=0).to(tl.float32)
    high = tl.load(at + HALF, mask=mask, other=0).to(tl.float32)
    is_query, is_value = head < HEADS, head >= HEADS + KV_HEADS
    is_key = (head >= HEADS) & (head < HEADS + KV_HEADS)
    if NORM:
        squares = tl.sum(low * low, 1) + tl.sum(high * high, 1)
        factor = 1.0 / tl.sqrt_rn(squares / HEAD_DIM + eps)
        normed_low = (low * factor[:, None]).to(qkv.dtype.element_ty).to(tl.float32)
        normed_high = (high * factor[:, None]).to(qkv.dtype.element_ty).to(tl.float32)
        for_query_low = tl.load(query_norm + pair, mask=some, other=0).to(tl.float32)[None, :]
        for_query_high = tl.load(query_norm + HALF + pair, mask=some, other=0).to(tl.float32)[None, :]
        for_key_low = tl.load(key_norm + pair, mask=some, other=0).to(tl.float32)[None, :]
        for_key_high = tl.load(key_norm + HALF + pair, mask=some, other=0).to(tl.float32)[None, :]
        normed_low *= tl.where(is_query[:, None], for_query_low, for_key_low)
        normed_high *= tl.where(is_query[:, None], for_query_high, for_key_high)
        low = tl.where(is_value[:, None], low, normed_low)
        high = tl.where(is_value[:, None], high, normed_high)
    turn = tl.load(cos + token * cos_token + pair, mask=some, other=0).to(tl.float32)[None, :]
    lift = tl.load(sin + token * cos_token + pair, mask=some, other=0).to(tl.float32)[None, :]
    turned_low = tl.where(is_value[:, None], low, low * turn - high * lift)
    turned_high = tl.where(is_value[:, None], high, high * turn + low * lift)

    _store_heads(query, token * query_token + head * query_head, turned_low, turned_high, pair,
                 mask & is_query[:, None], HALF, False)  # fmt: skip
    place = slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * stride_token
    _store_heads(keys, place + (head - HEADS) * stride_head, turned_low, turned_high, pair,
                 mask & is_key[:, None], HALF, FP8)  # fmt: skip
    _store_heads(values, place + (head - HEADS - KV_HEADS) * stride_head, turned_low, turned_high, pair,
                 mask & is_value[:, None], HALF, FP8)  # fmt: skip


def rotate_and_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    slots: torch.Tensor | None = None,
    query_norm: torch.Tensor | None = None,
    key_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> None:
    """Norm (with weights [head_dim], else not) and rotate query and key heads of qkv [num_tokens, (heads + 2 kv_heads)
    * head_dim]; write query [num_tokens, heads, head_dim], and keys and values to their places.

    With slots [num_tokens] (block * block_size + offset; less than 0: a padding token, nothing of it is written), keys
    and values are a layer of a plain cache, [num_blocks, block_size, kv_heads, head_dim]; without, they are
    [num_tokens, kv_heads, head_dim]. cos and sin [num_tokens, head_dim / 2], or head_dim of which the halves repeat.
    """
    heads, head_dim = query.shape[1:]
    if keys.dim() == 3:
        keys, values = keys[:, None], values[:, None]
    _, block_size, kv_heads, _ = keys.shape
    if keys.stride() != values.stride() or not keys.stride(3) == query.stride(2) == qkv.stride(1) == 1:
        raise ValueError("keys and values must lie alike, and the elements of a head one after another")
    if cos.stride() != sin.stride() or cos.stride(1) != 1:
        raise ValueError("cos and sin must lie alike, a token's numbers one after another")
    every = heads + 2 * kv_heads
    rotate_kernel[(len(qkv), triton.cdiv(every, HEADS_A_PROGRAM))](
        qkv, cos, sin, query, readable(keys), readable(values), slots, query_norm, key_norm, eps,
        qkv.stride(0), cos.stride(0), query.stride(0), query.stride(1), *keys.stride()[:3],
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HALF_PADDED=triton.next_power_of_2(head_dim // 2),
        BLOCK_SIZE=block_size, TOGETHER=HEADS_A_PROGRAM, NORM=query_norm is not None, SLOTS=slots is not None,
        FP8=keys.dtype is torch.float8_e4m3fn, num_warps=2,
    )  # fmt: skip


@triton.jit
def _half(x):
    """float16; what is too large becomes the largest."""
    return tl.minimum(tl.maximum(x, -MOST_HALF), MOST_HALF).to(tl.float16)


@triton.jit
def _codes(x, scale, least, most):
    """Whole numbers x / scale within [least, most] as int32, 0 where the scale is."""
    scale = scale.to(tl.float32)
    divided = tl.where(scale > 0, tl.div_rn(x, tl.where(scale > 0, scale, 1.0)), 0.0)
    return _rounded(tl.minimum(tl.maximum(divided, least), most)).to(tl.int32)


@triton.jit
def _store_numbers(raw, at, x, mask):
    tl.store((raw + at).to(tl.pointer_type(tl.float16)), x, mask=mask)


@triton.jit
def _quantize_side(
    x, raw, at, head, token, element, real, valid,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, PADDED: tl.constexpr,
    PART: tl.constexpr, BITS: tl.constexpr, CHANNEL: tl.constexpr, OUTLIERS: tl.constexpr,
):  # fmt: skip
    """Write x [tokens, head] float32, 0 where it is not real and valid, as one head of a side of a block at `at`."""
    PARTS: tl.constexpr = 8 // BITS
    BYTES: tl.constexpr = HEAD_DIM // PARTS
    VECTORS: tl.constexpr = BLOCK_SIZE * KV_HEADS
    scale_at = at + VECTORS * BYTES + 2 * head * (HEAD_DIM if CHANNEL else BLOCK_SIZE)
    GROUPS: tl.constexpr = KV_HEADS * HEAD_DIM if CHANNEL else VECTORS
    byte_at = at + (token * KV_HEADS + head) * BYTES
    kept = real[:, None] & valid[None, :]
    if BITS == 8:
        scale = _half(tl.div_rn(tl.max(tl.abs(x), 1), tl.full([PADDED], 127.0, tl.float32)))
        codes = _codes(x, scale[:, None], -127.0, 127.0)
        _store_numbers(raw, scale_at + 2 * token, scale, real)
        tl.store(raw + byte_at[:, None] + element[None, :], codes.to(tl.uint8), mask=kept)
    else:
        LEVELS: tl.constexpr = 2**BITS - 1
        AXIS: tl.constexpr = 0 if CHANNEL else 1
        if OUTLIERS:
            MEMBERS: tl.constexpr = BLOCK_SIZE if CHANNEL else HEAD_DIM
            summed = tl.sum(x, AXIS)
            mean = tl.expand_dims(tl.div_rn(summed, tl.zeros_like(summed) + MEMBERS), AXIS)
            far = tl.where(kept, tl.abs(x - mean), -1.0)
            index_at = at + VECTORS * BYTES + 4 * GROUPS + (token * KV_HEADS + head) * OUTLIERS
            value_at = at + VECTORS * (BYTES + OUTLIERS) + 4 * GROUPS + 2 * (token * KV_HEADS + head) * OUTLIERS
            for number in tl.static_range(OUTLIERS):
                farthest = far == tl.max(far, 1)[:, None]
                index = tl.min(tl.where(farthest & valid[None, :], element[None, :], HEAD_DIM), 1)
                chosen = (element[None, :] == index[:, None]) & valid[None, :]
                value = _half(tl.sum(tl.where(chosen, x, 0.0), 1))
                tl.store(raw + index_at + number, index.to(tl.uint8), mask=real)
                _store_numbers(raw, value_at + 2 * number, value, real)
                far = tl.where(chosen, -1.0, far)
                kept = kept & (chosen == 0)
        low = tl.min(tl.where(kept, x, float("inf")), AXIS)
        high = tl.max(tl.where(kept, x, float("-inf")), AXIS)
        some = low <= high
        low, high = tl.where(some, low, 0.0), tl.where(some, high, 0.0)
        minimum, scale = _half(low), _half(tl.div_rn(high - low, tl.zeros_like(low) + LEVELS))
        shifted = x - tl.expand_dims(minimum.to(tl.float32), AXIS)
        codes = _codes(shifted, tl.expand_dims(scale, AXIS), 0.0, LEVELS)
        if CHANNEL:
            number_at, mask = scale_at + 2 * element, valid
        else:
            number_at, mask = scale_at + 2 * token, real
        _store_numbers(raw, number_at, scale, mask)
        _store_numbers(raw, number_at + 2 * GROUPS, minimum, mask)
        place = tl.arange(0, PART)
        shifts = (tl.arange(0, PARTS) * BITS)[None, :, None]
        byte = tl.sum(codes.reshape(PADDED, PARTS, PART) << shifts, 1)
        tl.store(
            raw + byte_at[:, None] + place[None, :], byte.to(tl.uint8),
            mask=real[:, None] & (place < BYTES)[None, :],
        )  # fmt: skip


@triton.jit
def quantize_kernel(
    new_keys, new_values, raw, open_blocks, tables, firsts, counts, starts, slots,
    new_token, new_head, block_bytes, stride_slot, stride_copy, stride_side, stride_table,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, PADDED: tl.constexpr,
    PART: tl.constexpr, BITS: tl.constexpr, CHANNEL: tl.constexpr, OUTLIERS: tl.constexpr, SINKS: tl.constexpr,
    KEY_BYTES: tl.constexpr,
):  # fmt: skip
    """Grid (rows, blocks that a row's new tokens may touch, 2 * kv_heads): keys of every head, then values."""
    row, head = tl.program_id(0), tl.program_id(2) % KV_HEADS
    count, start, first = tl.load(counts + row), tl.load(starts + row), tl.load(firsts + row)
    is_value = tl.program_id(2) // KV_HEADS
    place = start // BLOCK_SIZE + tl.program_id(1)
    end = start + count
    if (count == 0) | (place * BLOCK_SIZE >= end):
        return
    element, valid = head_places(HEAD_DIM, 8 // BITS, PART)
    token = tl.arange(0, PADDED)
    position = place * BLOCK_SIZE + token
    real = token < BLOCK_SIZE
    fresh = real & (position >= start) & (position < end)
    new_at = (first + position - start).to(tl.int64)[:, None] * new_token + head * new_head + element[None, :]
    new_mask = fresh[:, None] & valid[None, :]
    if is_value == 0:
        made = tl.load(new_keys + new_at, mask=new_mask, other=0).to(tl.float32)
    else:
        made = tl.load(new_values + new_at, mask=new_mask, other=0).to(tl.float32)
    tail = open_blocks + tl.load(slots + row).to(tl.int64) * stride_slot + is_value * stride_side
    tail_at = ((token * KV_HEADS + head) * HEAD_DIM)[:, None] + element[None, :]
    if (place + 1) * BLOCK_SIZE > end:
        tl.store(tail + tail_at, made, mask=new_mask)
    else:
        before = real & (position < start)
        x = tl.load(tail + tail_at, mask=before[:, None] & valid[None, :], other=0)
        x = tl.where(fresh[:, None], made, x)
        if place < SINKS:
            tl.store(tail + (1 + place) * stride_copy + tail_at, x, mask=real[:, None] & valid[None, :])
        else:
            at = tl.load(tables + row.to(tl.int64) * stride_table + place).to(tl.int64) * block_bytes
            if is_value == 0:
                _quantize_side(x, raw, at, head, token, element, real, valid, KV_HEADS, HEAD_DIM, BLOCK_SIZE, PADDED,
                               PART, BITS, CHANNEL, OUTLIERS)  # fmt: skip
            else:
                _quantize_side(x, raw, at + KEY_BYTES, head, token, element, real, valid, KV_HEADS, HEAD_DIM,
                               BLOCK_SIZE, PADDED, PART, BITS, False, OUTLIERS)  # fmt: skip


def quantize_blocks(
    new_keys: torch.Tensor, new_values: torch.Tensor, layer: QuantizedLayer, rows: RowTable, longest: int
) -> None:
    """Keep a step's keys and values [num_tokens, kv_heads, head_dim]: what QuantizedLayer.write does, for all rows.

    Blocks that become full are quantized, or kept as sinks; what remains goes to the row's open block. A row that
    begins inside a block must not leave another one open: that is for the plan to see to. longest: new tokens of the
    longest row at most, which bounds the grid. ValueError where a block is too large for a program.
    """
    memory = QuantizedMemory.of(layer)
    kv_heads, head_dim = new_keys.shape[1:]
    size, bits = memory.block_size, 8 // PARTS[memory.format]
    part = padded_part(head_dim, memory.format)
    padded = triton.next_power_of_2(size)
    elements = padded * part * PARTS[memory.format]
    if elements > MOST_ELEMENTS:
        raise ValueError(f"block_size {size}: a kernel quantizes blocks of up to {MOST_ELEMENTS // head_dim} tokens")
    if new_keys.stride() != new_values.stride() or new_keys.stride(2) != 1:
        raise ValueError("new keys and values must lie alike, and the elements of a head one after another")
    quantize_kernel[(len(rows.count), triton.cdiv(longest - 1, size) + 1, 2 * kv_heads)](
        new_keys, new_values, memory.raw, memory.open, rows.tables, rows.first, rows.count, rows.start, rows.slots,
        new_keys.stride(0), new_keys.stride(1), memory.raw.stride(0), *memory.open.stride()[:3], rows.tables.stride(0),
        KV_HEADS=kv_heads, HEAD_DIM=head_dim, BLOCK_SIZE=size, PADDED=padded, PART=part, BITS=bits,
        CHANNEL=memory.per_channel, OUTLIERS=memory.outliers, SINKS=memory.sinks, KEY_BYTES=memory.key_bytes,
        num_warps=4 if elements <= 4096 else 8,
    )  # fmt: skip


def _rotate_shape(name: str, head_dim: int, cache: str, norm: bool, slots: bool) -> MainShape:
    """Of a bf16 model of 32 heads and 8 KV heads."""
    signature = {
        "qkv": "*bf16", "query": "*bf16", "keys": cache, "values": cache, "slots": "*i64", "cos": "*fp32",
        "sin": "*fp32", "query_norm": "*bf16", "key_norm": "*bf16", "eps": "fp32",
        **dict.fromkeys(("qkv_token", "cos_token", "query_token", "query_head"), "i32:16"),
        **dict.fromkeys(("stride_block", "stride_token", "stride_head"), "i32:16"),
    }  # fmt: skip
    missing = ([] if norm else ["query_norm", "key_norm"]) + ([] if slots else ["slots"])
    constants = {
        "HEADS": 32, "KV_HEADS": 8, "HEAD_DIM": head_dim, "HALF_PADDED": triton.next_power_of_2(head_dim // 2),
        "BLOCK_SIZE": 16 if slots else 1, "TOGETHER": HEADS_A_PROGRAM, "NORM": norm, "SLOTS": slots,
        "FP8": cache == "*u8", **dict.fromkeys(missing),
    }  # fmt: skip
    return MainShape(name, rotate_kernel, signature, constants, 2)


def _quantize_shape(name: str, head_dim: int, bits: int, block_size: int = 16, **changed: Any) -> MainShape:
    form = f"int{bits}"
    signature = {
        "new_keys": "*bf16", "new_values": "*bf16", "raw": "*u8", "open_blocks": "*fp32",
        **dict.fromkeys(("tables", "firsts", "counts", "starts", "slots"), "*i32"),
        **dict.fromkeys(("new_token", "new_head", "block_bytes", "stride_slot", "stride_copy"), "i32:16"),
        **dict.fromkeys(("stride_side", "stride_table"), "i32:16"),
    }  # fmt: skip
    constants = {
        "KV_HEADS": 8, "HEAD_DIM": head_dim, "BLOCK_SIZE": block_size, "PADDED": block_size,
        "PART": padded_part(head_dim, form), "BITS": bits, "CHANNEL": bits < 8, "OUTLIERS": 0, "SINKS": 0,
        "KEY_BYTES": block_size * 8 * (head_dim * bits // 8 + 2), **changed,
    }  # fmt: skip
    return MainShape(name, quantize_kernel, signature, constants, 4 if block_size * head_dim <= 4096 else 8)


def MAIN_SHAPES() -> list[MainShape]:
    """Rotation into each kind of cache, and each format's blocks."""
    return [
        _rotate_shape("rotate bf16 128 to cache", 128, "*bf16", False, True),
        _rotate_shape("rotate bf16 128 normed to cache", 128, "*bf16", True, True),
        _rotate_shape("rotate bf16 128 to fp8 cache", 128, "*u8", False, True),
        _rotate_shape("rotate bf16 64 to new", 64, "*bf16", False, False),
        _quantize_shape("quantize int8 128", 128, 8),
        _quantize_shape("quantize int8 256 blocks of 64", 256, 8, 64),
        _quantize_shape("quantize int4 128", 128, 4),
        _quantize_shape("quantize int4 token 128", 128, 4, CHANNEL=False),
        _quantize_shape("quantize int4 outliers 128", 128, 4, OUTLIERS=4),
        _quantize_shape("quantize int2 128", 128, 2),
    ]
