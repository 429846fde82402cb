"""Leases: which units of the shared area belong to which transfer, from before its first byte until it was read.

The driver alone gives them and takes them back, so no process can hold on to one by ending. Knows no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True)
class Lease:
    """Units of one transfer, and the number that its blocks are fenced with; no two leases have the same."""

    sequence: int
    units: tuple[int, ...]


class Leases:
    """`units` in all. A lease is whole or not given; the lowest units first, so that few pages are ever touched."""

    def __init__(self, units: int) -> None:
        self.units = units
        self._free = list(range(units))
        heapify(self._free)
        self._held: dict[int, Lease] = {}
        self._sequence = 0

    @property
    def num_free(self) -> int:
        """Units that nobody holds."""
        return len(self._free)

    @property
    def held(self) -> tuple[Lease, ...]:
        """Leases that are out, the oldest first."""
        return tuple(self._held.values())

    def take(self, count: int) -> Lease | None:
        """Units for one transfer; None while there are too few."""
        if count > len(self._free):
            return None
        self._sequence += 1
        lease = Lease(self._sequence, tuple(heappop(self._free) for _ in range(count)))
        self._held[lease.sequence] = lease
        return lease

    def give_back(self, lease: Lease) -> None:
        """Nobody writes to these units or reads them any more. ValueError for one that is not out."""
        if self._held.pop(lease.sequence, None) is None:
            raise ValueError(f"lease {lease.sequence} is given back but not out")
        for unit in lease.units:
            heappush(self._free, unit)

    def check(self) -> None:
        """Assert that every unit is free or in one lease."""
        held = [unit for lease in self._held.values() for unit in lease.units]
        assert sorted([*held, *self._free]) == list(range(self.units)), "a unit is lost or leased twice"
