"""The target's hidden states as proposers keep them: by request, at the positions that are really its text.

A feature is the target's hidden state after its final norm at a token. Steps bring them for drafts too, of which some
were then rejected: a feature counts only while every token up to it is the sequence's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core_engine.plan import Row
from core_engine.speculation.drafting import common_prefix


@dataclass(frozen=True)
class _Seen:
    """One row of a step: its tokens from position `start` on, and their features [tokens, hidden_size]."""

    start: int
    tokens: tuple[int, ...]
    features: torch.Tensor


@dataclass(frozen=True)
class Run:
    """Features [tokens, hidden_size] at positions from `start` on, without a gap."""

    start: int
    features: torch.Tensor

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.start + len(self.features)


class Features:
    """What was observed since it was last taken, by request. keep: tokens of a row kept from its end, None: all."""

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._seen: dict[str, list[_Seen]] = {}

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Copy a step's hidden states [tokens of the step, hidden_size]."""
        for row, states in zip(rows, hidden.split([row.count for row in rows]), strict=True):
            first = 0 if self._keep is None else max(0, row.count - self._keep)
            kept = _Seen(row.start + first, row.tokens[first:], states[first:].float().clone())
            before = [] if self._keep is not None else self._seen.get(row.request_id, [])
            self._seen[row.request_id] = [*before, kept]

    def take(self, request_id: str, tokens: Sequence[int], known: int) -> Run:
        """The newest features without a gap that continue those known, of positions below `known`, or begin anew.

        Where rows left positions out (found in the prefix cache, or computed while nobody looked) the run begins after
        the gap. What is returned is forgotten.
        """
        run = Run(known, torch.empty(0))
        for seen in self._seen.pop(request_id, []):
            same = common_prefix(seen.tokens, tokens[seen.start :])
            if seen.start > run.end:
                run = Run(seen.start, seen.features[:same])
            elif seen.start + same > run.end:
                more = seen.features[run.end - seen.start : same]
                run = Run(run.start, torch.cat([run.features, more]) if len(run.features) else more)
        return run

    def latest(self, request_id: str, tokens: Sequence[int], position: int) -> torch.Tensor | None:
        """The feature [hidden_size] at a position, from the newest row; None when that lacks it. It stays kept."""
        for seen in self._seen.get(request_id, [])[-1:]:
            if seen.start <= position < seen.start + common_prefix(seen.tokens, tokens[seen.start :]):
                return seen.features[position - seen.start]
        return None

    def release(self, request_id: str) -> None:
        """Forget a request."""
        self._seen.pop(request_id, None)

    def num_bytes(self) -> int:
        """Bytes held for all requests."""
        return sum(seen.features.nbytes for rows in self._seen.values() for seen in rows)
