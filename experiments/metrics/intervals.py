"""Sets of disjoint time intervals, asked how much of them lies between two moments. Integer ns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate


class Intervals:
    """The union of intervals. Building is O(n log n), each question O(log n)."""

    def __init__(self, intervals: Iterable[Sequence[int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((pair[0], pair[1]) for pair in intervals):
            if end <= start:
                continue
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        lengths = (end - start for start, end in zip(self._starts, self._ends, strict=True))
        self._until = [0, *accumulate(lengths)]

    def within(self, low: int, high: int) -> int:
        """Length in ns of what lies in [low, high]."""
        if high <= low:
            return 0
        first, last = bisect_right(self._ends, low), bisect_left(self._starts, high)
        if last <= first:
            return 0
        outside = max(0, low - self._starts[first]) + max(0, self._ends[last - 1] - high)
        return self._until[last] - self._until[first] - outside

    def pairs(self) -> list[tuple[int, int]]:
        """The disjoint intervals, in order."""
        return list(zip(self._starts, self._ends, strict=True))

    def without(self, other: Intervals) -> Intervals:
        """What is in these but not in `other`."""
        left: list[tuple[int, int]] = []
        taken, at = other.pairs(), 0
        for start, end in self.pairs():
            while at < len(taken) and taken[at][1] <= start:
                at += 1
            cut, place = start, at
            while place < len(taken) and taken[place][0] < end:
                left.append((cut, taken[place][0]))
                cut = taken[place][1]
                place += 1
            left.append((cut, end))
        return Intervals(left)
