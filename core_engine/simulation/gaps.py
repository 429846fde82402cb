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
        for gap_ns in gaps_ns.tolist():
            self.add(gap_ns, weight)

    def merge(self, other: Gaps) -> None:
        """Take in another sample."""
        self._exact.update(other._exact)
        self._bins.update(other._bins)
        self.count += other.count
        self.total_ns += other.total_ns
        if len(self._exact) > MOST_EXACT or (self._bins and self._exact):
            self._compact()

    def _compact(self) -> None:
        for gap_ns, weight in self._exact.items():
            self._bins[round(math.log(max(1, gap_ns)) / BIN)] += weight
        self._exact.clear()

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """(gaps in ns ascending, how often each)."""
        if self._bins and self._exact:
            self._compact()
        found = self._bins or self._exact
        keys = np.array(sorted(found), dtype=np.float64)
        weights = np.array([found[int(key)] for key in keys], dtype=np.int64)
        return (np.exp(keys * BIN) if self._bins else keys), weights

    def percentile(self, share: float) -> float | None:
        """The gap at a percentile, interpolated between neighbours as numpy's linear method; None without gaps."""
        if not self.count:
            return None
        values, weights = self.sorted()
        reach = np.cumsum(weights)
        place = share / 100 * (self.count - 1)
        low, high = (int(np.searchsorted(reach, rank, side="right")) for rank in (math.floor(place), math.ceil(place)))
        return float(values[low] + (place - math.floor(place)) * (values[high] - values[low]))
