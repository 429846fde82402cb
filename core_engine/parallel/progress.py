"""One counter a rank in memory that driver and ranks share: how the driver tells a slow step from one that hangs.

The memory is a file without a name, so nothing is left behind however the processes end.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

WORD = 8


def make_progress(ranks: int) -> int:
    """The descriptor of memory for so many counters, all zero."""
    with tempfile.TemporaryFile() as file:
        file.truncate(ranks * WORD)
        return os.dup(file.fileno())


class Progress:
    """The counters behind a descriptor."""

    def __init__(self, descriptor: int, ranks: int) -> None:
        self._memory = mmap.mmap(descriptor, ranks * WORD)
        self._counts = np.frombuffer(self._memory, dtype=np.int64)

    def step(self, rank: int) -> None:
        """Say that a rank got somewhere."""
        self._counts[rank] += 1

    def counts(self) -> list[int]:
        """How often each rank did."""
        return [int(count) for count in self._counts]
