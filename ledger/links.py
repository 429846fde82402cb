"""The alpha-beta model of a link between devices: a message costs its latency and its bytes over the bandwidth.

A ring over n devices takes 2 (n - 1) such messages for an all-reduce, and each device sends 2 (n - 1) / n of the vector
(Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """One direction between two devices. latency_s: of a message, whatever its size; label: what it is."""

    latency_s: float
    bytes_per_s: float
    label: str = "link"

    def send_s(self, num_bytes: float) -> float:
        """Seconds of one message."""
        return self.latency_s + num_bytes / self.bytes_per_s

    def steps_s(self, messages: int) -> float:
        """Seconds that so many messages take one after another beside their bytes."""
        return messages * self.latency_s

    def all_reduce_s(self, num_bytes: float, ranks: int) -> float:
        """Seconds of a ring all-reduce of a vector of so many bytes."""
        if ranks == 1:
            return 0.0
        return self.steps_s(2 * (ranks - 1)) + 2 * (ranks - 1) / ranks * num_bytes / self.bytes_per_s
