"""A sentence encoder and an index of nearest vectors that need no package: for the semantic cache's tests."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from core_engine.answer_cache.embedder import Embedder
from core_engine.answer_cache.vector_index import VectorIndex

DIM = 256


class WordEncoder(Embedder):
    """Texts with the same words, in any order, have the same vector."""

    name = "words"
    dim = DIM

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, text: str) -> np.ndarray:
        self.asked.append(text)
        vector = np.full(DIM, 1e-6, np.float32)
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % DIM] += 1
        return vector / np.linalg.norm(vector)

    def num_bytes(self) -> int:
        return 0

    def embed_all(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.embed(text) for text in texts])


class FlatIndex(VectorIndex):
    """Every vector is looked at."""

    def __init__(self, dim: int) -> None:
        self.vectors: dict[int, np.ndarray] = {}

    def add(self, key: int, vector: np.ndarray) -> None:
        assert key not in self.vectors
        self.vectors[key] = vector

    def remove(self, key: int) -> None:
        del self.vectors[key]

    def nearest(self, vector: np.ndarray) -> tuple[int, float]:
        similarity, key = max((float(vector @ other), key) for key, other in self.vectors.items())
        return key, similarity
