"""What the semantic tier needs of a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Embedder(Protocol):
    """Turns a text into a vector. dim: its length; name: says which weights."""

    name: str
    dim: int

    def embed(self, text: str) -> np.ndarray:
        """float32 [dim], of unit length; the same whenever it is asked."""
        ...

    def num_bytes(self) -> int:
        """Of its tensors."""
        ...

    def embed_all(self, texts: Sequence[str]) -> np.ndarray:
        """`embed` of each, float32 [texts, dim], sooner than one by one."""
        ...
