"""KVArea: KV blocks on their way from one process to the other, in memory that both map.

The memory has no name: it is a descriptor that the driver makes and its children inherit, so the system frees it with
the last of them, however they end, and nothing is left to sweep. Who may write where is leases.py's business. What is
not completely written is never taken for KV: a block's sequence number is written last, behind its checksum, and
`read` compares both.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

PAGE = 4096
LINE = 64  # a unit begins on a cache line, which is a multiple of every element and checksum word
WORD = np.dtype(np.uint64)
SEQUENCE, CHECKSUM = 0, 1


class TornTransfer(RuntimeError):
    """A block that is not what was announced: not written, half written, or another transfer's."""


def make_memory() -> int:
    """The descriptor of memory without a name, of no size yet."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trilemma-kv", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def area_bytes(units: int, unit_bytes: int) -> int:
    """Bytes of the memory for so many blocks; pages are taken as they are first written."""
    return _payload_at(units) + units * _stride(unit_bytes)


def _payload_at(units: int) -> int:
    return -(-units * 2 * WORD.itemsize // PAGE) * PAGE


def _stride(unit_bytes: int) -> int:
    return -(-unit_bytes // LINE) * LINE


class KVArea:
    """`units` places for one block of `unit_bytes` each, behind a descriptor whose memory is large enough."""

    def __init__(self, descriptor: int, units: int, unit_bytes: int) -> None:
        self.units, self.unit_bytes = units, unit_bytes
        memory = mmap.mmap(descriptor, area_bytes(units, unit_bytes))
        whole = np.frombuffer(memory, dtype=np.uint8)
        at = _payload_at(units)
        self._heads = whole[: units * 2 * WORD.itemsize].view(WORD).reshape(units, 2)
        self._payload = whole[at:].reshape(units, _stride(unit_bytes))

    def place(self, unit: int) -> np.ndarray:
        """uint8 [unit_bytes]: where to write a block, after `begin` and before `end`."""
        return self._payload[unit, : self.unit_bytes]

    def begin(self, unit: int) -> None:
        """What is there counts no more."""
        self._heads[unit, SEQUENCE] = 0

    def end(self, unit: int, sequence: int) -> None:
        """It is completely written, for the transfer of that number (1 or more)."""
        self._heads[unit, CHECKSUM] = self._checksum(unit)
        self._heads[unit, SEQUENCE] = sequence

    def read(self, unit: int, sequence: int) -> np.ndarray:
        """uint8 [unit_bytes] of a block of that transfer; TornTransfer when it is anything else."""
        found = int(self._heads[unit, SEQUENCE])
        if found != sequence:
            raise TornTransfer(f"unit {unit} holds transfer {found or 'none'}, not {sequence}")
        if int(self._heads[unit, CHECKSUM]) != int(self._checksum(unit)):
            raise TornTransfer(f"unit {unit} of transfer {sequence} has another checksum")
        return self.place(unit)

    def _checksum(self, unit: int) -> np.uint64:
        """The sum of its 64-bit words, what fills up its last line included: memory is read once and fast."""
        total: np.uint64 = self._payload[unit].view(WORD).sum(dtype=WORD)
        return total
