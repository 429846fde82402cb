"""Blocks of GGUF files as QuantizedMatrix, code by code: nothing is rounded again.

Layouts are those of llama.cpp's ggml-common.h: blocks of 32 with a float16 scale (and minimum), super-blocks of 256
whose groups have scales in few bits. `dequantized()` of the result equals the gguf package's `dequantize` bit for bit.
5-bit formats are held in 6-bit codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.quant.matrix import QuantizedMatrix

Bytes = NDArray[np.uint8]
BLOCK, SUPER = 32, 256  # elements
LOW, HIGH = np.uint8(0x0F), np.uint8(0x03)


class _Parts(NamedTuple):
    """Of blocks [count, bytes]: codes [count, elements], outer numbers float16 [count], inner ones [count, groups]."""

    codes: Bytes
    scale: Bytes
    minimum: Bytes | None = None
    scale_codes: NDArray[np.uint8] | NDArray[np.int8] | None = None
    minimum_codes: Bytes | None = None


def is_stored(kind: str) -> bool:
    """Whether blocks of this GGUF type become a QuantizedMatrix; the other types are floats."""
    return kind in _READERS


def from_blocks(rows: Bytes, kind: str) -> QuantizedMatrix:
    """Rows of blocks [out, bytes of a row] of a type that `is_stored`. The result is memory of its own."""
    bits, group, elements, block_bytes, read = _READERS[kind]
    out, row_bytes = rows.shape
    blocks = row_bytes // block_bytes
    parts = read(np.ascontiguousarray(rows).reshape(out * blocks, block_bytes))

    def held(values: NDArray[np.uint8] | NDArray[np.int8] | None) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(np.array(values).reshape(out, -1))

    def half(values: Bytes | None) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(np.array(values).view(np.float16).reshape(out, blocks))

    scale = half(parts.scale)
    if scale is None:
        raise TypeError(f"blocks of {kind} without a scale")  # a fault of a reader below
    codes = torch.from_numpy(parts.codes.reshape(out, blocks * elements))
    return QuantizedMatrix(
        bits, group, codes, scale, minimum=half(parts.minimum), scale_codes=held(parts.scale_codes),
        minimum_codes=held(parts.minimum_codes),
    )  # fmt: skip


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """Bytes [count, n] as 4-bit numbers [count, 2 n]: of every `run` bytes the low halves, then the high ones."""
    halves = packed.reshape(len(packed), -1, 1, run) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (halves & LOW).reshape(len(packed), -1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """4 bytes [count, 4], bit i that of element i, as 16 or 0 [count, 32]."""
    return np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little") << np.uint8(4)


def _q8_0(blocks: Bytes) -> _Parts:
    return _Parts(blocks[:, 2:] ^ np.uint8(0x80), blocks[:, :2])  # a signed byte plus 128


def _q4_0(blocks: Bytes) -> _Parts:
    return _Parts(_nibbles(blocks[:, 2:], 16), blocks[:, :2])


def _q4_1(blocks: Bytes) -> _Parts:
    return _Parts(_nibbles(blocks[:, 4:], 16), blocks[:, :2], blocks[:, 2:4])


def _q5_0(blocks: Bytes) -> _Parts:
    codes = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return _Parts(codes + np.uint8(16), blocks[:, :2])  # around 32 instead of 16


def _q5_1(blocks: Bytes) -> _Parts:
    return _Parts(_nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8]), blocks[:, :2], blocks[:, 2:4])


def _q4_k(blocks: Bytes) -> _Parts:
    scales, minima = _six_bit_pairs(blocks[:, 4:16])
    return _Parts(_nibbles(blocks[:, 16:], 32), blocks[:, :2], blocks[:, 2:4], scales, minima)


def _q5_k(blocks: Bytes) -> _Parts:
    scales, minima = _six_bit_pairs(blocks[:, 4:16])
    high = blocks[:, 16:48].reshape(len(blocks), 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    fifth = ((high & np.uint8(1)) << np.uint8(4)).reshape(len(blocks), SUPER)
    return _Parts(_nibbles(blocks[:, 48:], 32) | fifth, blocks[:, :2], blocks[:, 2:4], scales, minima)


def _q6_k(blocks: Bytes) -> _Parts:
    low = _nibbles(blocks[:, :128], 64)
    high = blocks[:, 128:192].reshape(len(blocks), 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    codes = low | ((high & HIGH) << np.uint8(4)).reshape(len(blocks), SUPER)
    return _Parts(codes, blocks[:, 208:], scale_codes=blocks[:, 192:208].view(np.int8))


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes [count, 12] as 8 scales and 8 minima of 6 bits: the first four whole, the others in 4 + 2 bits."""
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    six, top = np.uint8(0x3F), np.uint8(0x30)
    scales = np.concatenate([first & six, (rest & LOW) | (first >> np.uint8(2) & top)], axis=1)
    minima = np.concatenate([second & six, (rest >> np.uint8(4)) | (second >> np.uint8(2) & top)], axis=1)
    return scales, minima


# GGUF type -> bits of a code, group, elements and bytes of a block, and its reader.
_READERS: dict[str, tuple[int, int, int, int, Callable[[Bytes], _Parts]]] = {
    "Q8_0": (8, 32, BLOCK, 34, _q8_0),
    "Q4_0": (4, 32, BLOCK, 18, _q4_0),
    "Q4_1": (4, 32, BLOCK, 20, _q4_1),
    "Q5_0": (6, 32, BLOCK, 22, _q5_0),
    "Q5_1": (6, 32, BLOCK, 24, _q5_1),
    "Q4_K": (4, 32, SUPER, 144, _q4_k),
    "Q5_K": (6, 32, SUPER, 176, _q5_k),
    "Q6_K": (6, 16, SUPER, 210, _q6_k),
}
