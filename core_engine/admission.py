"""Admission policies: when may waiting requests join the running ones. One object per batching policy.

Owns nothing but the rule. Kernels, chunking and paging are the same under all, so a comparison of policies changes
one thing only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from core_engine.config import EngineConfig


@dataclass(frozen=True)
class AdmissionView:
    """What a policy may look at. occupied counts running and held slots; times in ns."""

    num_waiting: int
    occupied: int
    oldest_wait_ns: int
    more_arrivals: bool


class AdmissionPolicy(Protocol):
    """When waiting requests may take a slot, and when slots come back."""

    @property
    def holds_finished(self) -> bool:
        """Whether a finished request keeps slot and blocks until its whole batch ends."""
        ...

    def open_slots(self, view: AdmissionView) -> int:
        """Slots that may be filled now."""
        ...


@dataclass(frozen=True)
class ContinuousAdmission:
    """Every free slot may be filled at every step."""

    max_num_seqs: int
    holds_finished: bool = False

    def open_slots(self, view: AdmissionView) -> int:
        """All free slots."""
        return self.max_num_seqs - view.occupied


@dataclass(frozen=True)
class StaticAdmission:
    """A batch starts when it is full or nobody else will come, and no slot is freed before its slowest member ends."""

    max_num_seqs: int
    holds_finished: bool = True

    def open_slots(self, view: AdmissionView) -> int:
        """A whole batch or nothing."""
        if view.occupied or not self._ready(view):
            return 0
        return self.max_num_seqs

    def _ready(self, view: AdmissionView) -> bool:
        return view.num_waiting >= self.max_num_seqs or not view.more_arrivals


@dataclass(frozen=True)
class DynamicAdmission(StaticAdmission):
    """Static, but a batch that is not full starts once its oldest request has waited `max_wait_ns`."""

    max_wait_ns: int = 0

    def _ready(self, view: AdmissionView) -> bool:
        return super()._ready(view) or view.oldest_wait_ns >= self.max_wait_ns


def admission_policy(config: EngineConfig) -> AdmissionPolicy:
    """The policy that `batching` names."""
    if config.batching == "static":
        return StaticAdmission(config.max_num_seqs)
    if config.batching == "dynamic":
        return DynamicAdmission(config.max_num_seqs, max_wait_ns=int(config.max_wait_ms * 1e6))
    return ContinuousAdmission(config.max_num_seqs)
