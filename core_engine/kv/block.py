"""A quantized block byte by byte, and the reference of how it is written and read, which all else is tested against.

A side (keys or values) of a block in one layer lies as
    codes     [block_size][kv_heads][head_dim / codes_a_byte] bytes
    scale     fp16: [kv_heads][head_dim] per channel, [kv_heads][block_size] per token
    minimum   fp16, likewise; int8 is symmetric and has none
    index     [block_size][kv_heads][outliers] bytes; value, fp16, likewise
and a block is its keys, then its values. A byte holds the codes of elements i, i + head_dim / codes_a_byte, ..., the
first in its lowest bits, so that a vector of bytes is unpacked by shifts alone.

Arithmetic is float32; halves and codes are rounded to the nearest, ties to even. int8: scale = max |x| / 127 and
code = x / scale. int4 and int2: minimum = min x, scale = (max x - min x) / (2^bits - 1) and
code = (x - minimum) / scale. Codes go by scale and minimum as they are stored. Asymmetric groups and keys per channel
are KIVI's (arXiv 2402.02750), elements kept apart KVQuant's (arXiv 2401.18079).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from ledger.kv_blocks import BlockFormat

MOST_HALF = 65_504.0


def half(x: torch.Tensor) -> torch.Tensor:
    """x in fp16; what is too large becomes the largest."""
    return x.clamp(-MOST_HALF, MOST_HALF).half()


@dataclass(frozen=True)
class Side:
    """The keys or the values of a block of one layer."""

    format: BlockFormat
    per_channel: bool
    block_size: int
    kv_heads: int
    head_dim: int

    @cached_property
    def outliers(self) -> int:
        """Elements of a token and head that are kept apart."""
        return self.format.outliers(self.head_dim)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of codes, scale, minimum, outliers' indices and values, as they follow one another."""
        vectors = self.block_size * self.kv_heads
        groups = self.kv_heads * (self.head_dim if self.per_channel else self.block_size)
        kept = vectors * self.outliers
        codes = vectors * self.head_dim // self.format.codes_a_byte
        return codes, 2 * groups, 2 * groups * self.format.has_zero, kept, 2 * kept

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """uint8 [blocks, bytes] of x [blocks, block_size, kv_heads, head_dim]."""
        x = x.float()
        parts = self._asymmetric(x) if self.format.has_zero else self._symmetric(x)
        return torch.cat([_bytes(part) for part in parts], dim=-1)

    def _symmetric(self, x: torch.Tensor) -> list[torch.Tensor]:
        scale = half(x.abs().amax(-1, keepdim=True) / 127)
        codes = _divided(x, scale.float()).clamp(-127, 127).to(torch.int8)
        return [codes, scale.transpose(1, 2)]

    def _asymmetric(self, x: torch.Tensor) -> list[torch.Tensor]:
        dim, levels = 1 if self.per_channel else -1, 2**self.format.bits - 1
        apart = self._apart(x, dim)
        kept = torch.ones_like(x, dtype=torch.bool).scatter_(-1, apart, False)
        some = kept.any(dim, keepdim=True)
        low = torch.where(some, x.masked_fill(~kept, torch.inf).amin(dim, keepdim=True), 0.0)
        high = torch.where(some, x.masked_fill(~kept, -torch.inf).amax(dim, keepdim=True), 0.0)
        minimum, scale = half(low), half((high - low) / levels)
        codes = _divided(x - minimum.float(), scale.float()).clamp(0, levels).to(torch.uint8)
        parts = codes.unflatten(-1, (self.format.codes_a_byte, -1))
        packed = torch.zeros_like(parts[..., 0, :])
        for place in range(self.format.codes_a_byte):
            packed |= parts[..., place, :] << (place * self.format.bits)
        return [
            packed,
            scale.transpose(1, 2),
            minimum.transpose(1, 2),
            apart.to(torch.uint8),
            half(x.gather(-1, apart)),
        ]

    def _apart(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """[..., outliers]: the elements of each token and head that lie farthest from the mean of their group, those
        that make steps wide; of equals the first. (From the middle both ends of a range are equally far.)"""
        far = (x - x.mean(dim, keepdim=True)).abs()
        return far.sort(dim=-1, descending=True, stable=True).indices[..., : self.outliers]

    def dequantize(self, raw: torch.Tensor) -> torch.Tensor:
        """float32 [blocks, block_size, kv_heads, head_dim] of raw [blocks, bytes]."""
        codes, scale, minimum, index, value = raw.split(self.sizes, dim=-1)
        shape = (len(raw), self.block_size, self.kv_heads)
        numbers: tuple[int, ...] = (len(raw), self.kv_heads, self.block_size)
        if self.per_channel:
            numbers = (len(raw), 1, self.kv_heads, self.head_dim)

        def group(part: torch.Tensor) -> torch.Tensor:
            found = _halves(part).view(numbers)
            return found if self.per_channel else found.transpose(1, 2).unsqueeze(-1)

        if not self.format.has_zero:
            return codes.contiguous().view(torch.int8).reshape(*shape, self.head_dim) * group(scale)
        packed = codes.reshape(*shape, 1, self.head_dim // self.format.codes_a_byte)
        shifts = torch.arange(self.format.codes_a_byte, device=raw.device, dtype=torch.uint8)[:, None]
        loose = (packed >> (shifts * self.format.bits)) & (2**self.format.bits - 1)
        x = loose.flatten(-2) * group(scale) + group(minimum)
        if not self.outliers:
            return x
        apart = index.reshape(*shape, self.outliers).long()
        return x.scatter_(-1, apart, _halves(value).view(*shape, self.outliers))


def _divided(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x / scale as whole numbers; 0 where the scale is."""
    return torch.where(scale > 0, x / scale, 0.0).round()


def _bytes(part: torch.Tensor) -> torch.Tensor:
    """[blocks, bytes] of a part of any type."""
    return part.contiguous().flatten(1).view(torch.uint8)


def _halves(part: torch.Tensor) -> torch.Tensor:
    """float32 of the halves in bytes [blocks, bytes], copied first: they may lie at an odd place."""
    return part.clone(memory_format=torch.contiguous_format).view(torch.float16).float()


@dataclass(frozen=True)
class BlockLayout:
    """A block of one layer: keys, then values."""

    keys: Side
    values: Side

    @classmethod
    def of(cls, format: BlockFormat, block_size: int, kv_heads: int, head_dim: int) -> BlockLayout:
        """The layout of blocks of a format."""
        channel = format.has_zero and format.key_axis == "channel"
        sizes = (block_size, kv_heads, head_dim)
        return cls(Side(format, channel, *sizes), Side(format, False, *sizes))

    @property
    def block_bytes(self) -> int:
        """Of one layer."""
        return sum(self.keys.sizes) + sum(self.values.sizes)

    def quantize(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """uint8 [blocks, block_bytes] of keys and values [blocks, block_size, kv_heads, head_dim]."""
        return torch.cat([self.keys.quantize(keys), self.values.quantize(values)], dim=-1)

    def dequantize(self, raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """float32 keys and values [blocks, block_size, kv_heads, head_dim] of raw [blocks, block_bytes]."""
        keys, values = raw.split([sum(self.keys.sizes), sum(self.values.sizes)], dim=-1)
        return self.keys.dequantize(keys), self.values.dequantize(values)
