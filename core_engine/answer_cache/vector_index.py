"""Nearest vectors by cosine similarity: the interface that the semantic tier needs, and usearch behind it.

usearch keeps a graph (HNSW): approximate, but a search does not grow with the number of vectors as a scan does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ledger.errors import CannotRunError


class VectorIndex(Protocol):
    """Unit vectors, float32 [dim], by whole-number key."""

    def add(self, key: int, vector: np.ndarray) -> None:
        """Keep a vector under a key that is not in use."""
        ...

    def remove(self, key: int) -> None:
        """Forget the vector of a key."""
        ...

    def nearest(self, vector: np.ndarray) -> tuple[int, float]:
        """(key, cosine similarity) of the most similar vector, of at least one that is kept."""
        ...


EMPTY_BYTES = 45_000  # of a usearch graph with one vector, as resident memory shows it (100 of them, version 2.26)
MakeIndex = Callable[[int], VectorIndex]


class UsearchIndex:
    """A usearch HNSW graph over vectors of `dim` float32."""

    def __init__(self, dim: int) -> None:
        """CannotRunError when usearch is not installed."""
        try:
            from usearch.index import Index
        except ImportError:
            raise CannotRunError(f"semantic_cache: usearch is not installed; {INSTALL}") from None
        self._index = Index(ndim=dim, metric="cos", dtype="f32")

    def add(self, key: int, vector: np.ndarray) -> None:
        self._index.add(key, vector)

    def remove(self, key: int) -> None:
        self._index.remove(key)

    def nearest(self, vector: np.ndarray) -> tuple[int, float]:
        found = self._index.search(vector, 1)
        return int(found.keys[0]), 1.0 - float(found.distances[0])


INSTALL = 'run .venv/bin/pip install -c constraints.txt -e ".[cache]" (104 MB, for the semantic cache alone)'
