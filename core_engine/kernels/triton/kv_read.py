"""How kernels read keys and values: a tile [keys, padded head] out of cache blocks in each format.

Owns the view of a layer's memory that launches pass on, and the device functions that turn bytes into elements. The
byte layout is that of core_engine/kv/block.py. A head is padded part by part: the elements that share a byte lie
head_dim / parts apart, and each such part is filled up to a power of two, so that bytes unpack without a shuffle.

Key numbers are positions in the sequence. A tile may gather over several blocks: every key has its own address.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from core_engine.kv.cache import QuantizedLayer

PARTS = {"plain": 1, "fp8": 1, "int8": 1, "int4": 2, "int2": 4}


@dataclass(frozen=True)
class QuantizedMemory:
    """A layer of a quantized cache as kernels take it.

    raw [num_blocks, block_bytes] uint8; open [slots, 1 + sinks, 2, block_size, kv_heads, head_dim] float32.
    per_channel: keys share scales by channel. key_bytes: of a block's keys, where its values begin.
    """

    raw: torch.Tensor
    open: torch.Tensor
    format: str
    per_channel: bool
    outliers: int
    sinks: int
    block_size: int
    key_bytes: int

    @classmethod
    def of(cls, layer: QuantizedLayer) -> QuantizedMemory:
        """ValueError where numbers of two bytes would lie at odd places: blocks of an odd number of vectors."""
        cache = layer._cache
        keys, values = cache.layout.keys, cache.layout.values
        if any(size % 2 for size in (*keys.sizes[:4], *values.sizes[:4])):
            raise ValueError(f"block_size {cache.block_size}: kernels need an even number of bytes in each part")
        name, channel = keys.format.name, keys.per_channel
        return cls(
            layer._raw, layer._slots, name, channel, keys.outliers, cache.sinks, cache.block_size, sum(keys.sizes)
        )


def padded_part(head_dim: int, form: str) -> int:
    """Elements of a part of a head, filled up to a power of two. Products need 16 along a whole head."""
    return max(triton.next_power_of_2(head_dim // PARTS[form]), 16 // PARTS[form])


def stored_as(keys: torch.Tensor) -> str:
    """The format of a plain cache."""
    return "fp8" if keys.dtype is torch.float8_e4m3fn else "plain"


def readable(side: torch.Tensor) -> torch.Tensor:
    """fp8 as bytes: not every device and not the interpreter knows the format."""
    return side.view(torch.uint8) if side.dtype is torch.float8_e4m3fn else side


@triton.jit
def head_places(HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr):
    """(element, is one) at each of the PARTS * PART places of a padded head."""
    place = tl.arange(0, PARTS * PART)
    inner = place % PART
    return (place // PART) * (HEAD_DIM // PARTS) + inner, inner < HEAD_DIM // PARTS


@triton.jit
def block_of_key(table, key, inside, BLOCK_SIZE: tl.constexpr):
    """int64 block numbers of keys, 0 where a key is not `inside`."""
    return tl.load(table + key // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)


@triton.jit
def from_fp8(byte, NATIVE: tl.constexpr):
    """fp16 of e4m3 bytes. As fp16 bits their exponent is 8 too small; a NaN, which no cache holds, reads as 480."""
    if NATIVE:
        x = byte.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        wide = byte.to(tl.uint16)
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        x = bits.to(tl.float16, bitcast=True) * 256.0
    return x


@triton.jit
def plain_tile(
    side, stride_block, stride_token, block, key, inside, element, valid,
    BLOCK_SIZE: tl.constexpr, FORMAT: tl.constexpr, NATIVE_FP8: tl.constexpr, MASKED: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """[keys, head] of a plain cache in DTYPE, 0 where a key is not `inside`. side: one head of keys or of values.

    MASKED False: every key is inside and no head is padded.
    """
    at = side + (block * stride_block + (key % BLOCK_SIZE) * stride_token)[:, None] + element[None, :]
    if MASKED:
        x = tl.load(at, mask=inside[:, None] & valid[None, :], other=0)
    else:
        x = tl.load(at)
    if FORMAT == "fp8":
        x = from_fp8(x, NATIVE_FP8)
    return x.to(DTYPE)


@triton.jit
def codes_tile(
    raw, block_at, key, inside, head,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BITS: tl.constexpr,
    PART: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """[keys, head] of codes as DTYPE. block_at: the place in `raw` where each key's block has this side."""
    PARTS: tl.constexpr = 8 // BITS
    BYTES: tl.constexpr = HEAD_DIM // PARTS
    place = tl.arange(0, PART)
    at = block_at + ((key % BLOCK_SIZE) * KV_HEADS + head) * BYTES
    byte = tl.load(raw + at[:, None] + place[None, :], mask=inside[:, None] & (place < BYTES)[None, :], other=0)
    if BITS == 8:
        codes = byte.to(tl.int8, bitcast=True)
    elif BITS == 4:
        codes = tl.join(byte & 15, byte >> 4).permute(0, 2, 1).reshape(byte.shape[0], 2 * PART)
    else:
        low = tl.join(byte & 3, (byte >> 2) & 3)
        high = tl.join((byte >> 4) & 3, byte >> 6)
        codes = tl.join(low, high).permute(0, 3, 2, 1).reshape(byte.shape[0], 4 * PART)
    return codes.to(DTYPE)


@triton.jit
def _halves(raw, at, mask):
    """float32 of the fp16 numbers at these places of `raw`, 0 elsewhere."""
    return tl.load((raw + at).to(tl.pointer_type(tl.float16)), mask=mask, other=0).to(tl.float32)


@triton.jit
def token_numbers(
    raw, block_at, key, inside, head,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Scale and minimum of each key, float32; the minimum is 0 where codes are symmetric."""
    CODES: tl.constexpr = BLOCK_SIZE * KV_HEADS * HEAD_DIM * BITS // 8
    at = block_at + CODES + 2 * (head * BLOCK_SIZE + key % BLOCK_SIZE)
    scale = _halves(raw, at, inside)
    if BITS == 8:
        minimum = tl.zeros_like(scale)
    else:
        minimum = _halves(raw, at + 2 * KV_HEADS * BLOCK_SIZE, inside)
    return scale, minimum


@triton.jit
def by_channel(
    codes, raw, block_at, inside, head, element, valid,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BITS: tl.constexpr,
    TOGETHER: tl.constexpr,
):  # fmt: skip
    """float32 codes * scale + minimum by channel. TOGETHER neighbouring keys lie in one block; block_at and inside
    are of every such group, so that numbers are read once for a group and not for a key."""
    CODES: tl.constexpr = BLOCK_SIZE * KV_HEADS * HEAD_DIM * BITS // 8
    at = (block_at + CODES + 2 * head * HEAD_DIM)[:, None] + 2 * element[None, :]
    mask = inside[:, None] & valid[None, :]
    scale = _halves(raw, at, mask)
    minimum = _halves(raw, at + 2 * KV_HEADS * HEAD_DIM, mask)
    groups: tl.constexpr = codes.shape[0] // TOGETHER
    loose = codes.to(tl.float32).reshape(groups, TOGETHER, codes.shape[1])
    return (loose * scale[:, None, :] + minimum[:, None, :]).reshape(codes.shape[0], codes.shape[1])


@triton.jit
def with_outliers(
    x, raw, block_at, key, inside, head, element,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, BITS: tl.constexpr,
    CHANNEL: tl.constexpr, OUTLIERS: tl.constexpr,
):  # fmt: skip
    """x [keys, head] float32 with the elements that are kept apart put in."""
    VECTORS: tl.constexpr = BLOCK_SIZE * KV_HEADS
    GROUPS: tl.constexpr = KV_HEADS * HEAD_DIM if CHANNEL else VECTORS
    INDEX: tl.constexpr = VECTORS * HEAD_DIM * BITS // 8 + 4 * GROUPS
    first = ((key % BLOCK_SIZE) * KV_HEADS + head) * OUTLIERS
    for number in tl.static_range(OUTLIERS):
        index = tl.load(raw + block_at + INDEX + first + number, mask=inside, other=0).to(tl.int32)
        value = _halves(raw, block_at + INDEX + VECTORS * OUTLIERS + 2 * (first + number), inside)
        x = tl.where(element[None, :] == index[:, None], value[:, None], x)
    return x
