"""Prompt look-up (Saxena 2023; LLMA, Yang et al. 2023): what followed the last time the sequence ended like this.

Needs no model. Pays where answers repeat their prompt or themselves: copying, editing, code, loops.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from core_engine.plan import Row
from core_engine.speculation.proposer import NO_DRAFT, Ask, Draft

LONGEST, SHORTEST = 4, 2  # tokens that have to agree: the longest match first; one alone agrees by chance too often
ID_BYTES = 4


class NgramProposer:
    """Searches the ids of each sequence as bytes: 4 a token, and a search is one memmem."""

    needs_hidden = False

    def __init__(self, longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        self._lengths = range(longest, shortest - 1, -1)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """What followed the newest earlier place that ends in the longest of the last n-grams."""
        return [self._draft(_as_bytes(ask.tokens), ask.k) for ask in asks]

    def _draft(self, ids: bytes, k: int) -> Draft:
        for length in self._lengths:
            follows = _after_last(ids, length * ID_BYTES)
            if follows is not None:
                return Draft(_continued(ids, follows, k))
        return NO_DRAFT

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Never called: it looks at tokens alone."""

    def release(self, request_id: str) -> None:
        """It keeps nothing of a sequence."""

    def weights_bytes(self) -> int:
        """It has none."""
        return 0

    def cache_bytes(self) -> int:
        """It keeps none."""
        return 0


def _as_bytes(tokens: Sequence[int]) -> bytes:
    return array("i", tokens).tobytes()


def _after_last(ids: bytes, size: int) -> int | None:
    """Where the last earlier occurrence of the final `size` bytes ends, in whole ids; None without one."""
    if len(ids) <= size:
        return None
    tail, end = ids[-size:], len(ids) - ID_BYTES  # at least one id follows it
    while (found := ids.rfind(tail, 0, end)) >= 0:
        if found % ID_BYTES == 0:
            return found + size
        end = found + size - 1  # bytes of neighbouring ids that look like these
    return None


def _continued(ids: bytes, follows: int, k: int) -> tuple[int, ...]:
    """k ids from `follows` on. Where they reach the end of what there is they go on with themselves, as in a loop."""
    found = array("i", ids[follows : follows + k * ID_BYTES]).tolist()
    while len(found) < k:
        found += found[: k - len(found)]
    return tuple(found)
