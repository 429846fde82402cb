"""Gaps between emissions, pooled over requests: exact while they are few, then in bins of 0.5 %.

A million answers have hundreds of millions of gaps; percentiles of the bins are within half a bin.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

MOST_EXACT = 200_000
BIN = math.log(1.005)


class Gaps:
    """A weighted sample of durations in ns."""

    def __init__(self) -> None:
        self._exact: Counter[int] = Counter()
        self._chunks: list[tuple[np.ndarray, int]] = []  # exact too: (gaps, weight of each)
        self._in_chunks = 0
        self._bins: Counter[int] = Counter()
        self.count = 0
        self.total_ns = 0

    @property
    def is_exact(self) -> bool:
        """Whether no gap has been put into a bin."""
        return not self._bins

    def add(self, gap_ns: int, weight: int = 1) -> None:
        """Count a gap `weight` times."""
        self._exact[gap_ns] += weight
        self.count += weight
        self.total_ns += weight * gap_ns
        if len(self._exact) > MOST_EXACT:
            self._compact()

    def add_all(self, gaps_ns: np.ndarray, weight: int) -> None:
        """Count each of these `weight` times."""
        self._chunks.append((gaps_ns, weight))
        self._in_chunks += len(gaps_ns)
        self.count += weight * len(gaps_ns)
        self.total_ns += weight * int(gaps_ns.sum())
        if self._in_chunks > MOST_EXACT:
            self._compact()

    def merge(self, other: Gaps) -> None:
        """Take in another sample."""
        self._exact.update(other._exact)
        self._chunks += other._chunks
        self._in_chunks += other._in_chunks
        self._bins.update(other._bins)
        self.count += other.count
        self.total_ns += other.total_ns
        if self._bins or len(self._exact) + self._in_chunks > MOST_EXACT:
            self._compact()

    def _compact(self) -> None:
        values, weights = self._all_exact()
        self._exact.clear()
        self._chunks, self._in_chunks = [], 0
        places = np.rint(np.log(np.maximum(1, values)) / BIN).astype(np.int64)
        for place, weight in zip(*_summed(places, weights), strict=True):
            self._bins[int(place)] += int(weight)

    def _all_exact(self) -> tuple[np.ndarray, np.ndarray]:
        keys = np.fromiter(self._exact.keys(), dtype=np.int64, count=len(self._exact))
        counts = np.fromiter(self._exact.values(), dtype=np.int64, count=len(self._exact))
        values = [keys, *(chunk for chunk, _ in self._chunks)]
        weights = [counts, *(np.full(len(chunk), weight) for chunk, weight in self._chunks)]
        return np.concatenate(values), np.concatenate(weights)

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """(gaps in ns ascending, how often each)."""
        if self._bins:
            self._compact()
            places = np.array(sorted(self._bins), dtype=np.int64)
            return np.exp(places * BIN), np.array([self._bins[int(place)] for place in places], dtype=np.int64)
        return _summed(*self._all_exact())

    def percentile(self, share: float) -> float | None:
        """The gap at a percentile, interpolated between neighbours as numpy's linear method; None without gaps."""
        if not self.count:
            return None
        values, weights = self.sorted()
        reach = np.cumsum(weights)
        place = share / 100 * (self.count - 1)
        low, high = (int(np.searchsorted(reach, rank, side="right")) for rank in (math.floor(place), math.ceil(place)))
        return float(values[low] + (place - math.floor(place)) * (values[high] - values[low]))


def _summed(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values once each, ascending, and the sum of each one's weights."""
    once, places = np.unique(values, return_inverse=True)
    total = np.zeros(len(once), dtype=np.int64)
    np.add.at(total, places, weights)
    return once, total
