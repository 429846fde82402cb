"""Reading the journal of KV blocks: which events led to the state in which a step executed, and which followed it.

A record's steps carry kv_events and kv_commit_events [[what, request id, blocks], ...] in order. What is one of take (a
new block), share (one found in the prefix cache), drop, publish (now in the prefix index) and evict (no longer in it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.metrics.events import Record

Event = Sequence[Any]


def journal(record: Record) -> Iterator[tuple[list[Event], list[Event]]]:
    """For each step (events that led to the state in which it executed, events of its commit)."""
    for step in record["steps"]:
        yield step.get("kv_events", []), step.get("kv_commit_events", [])
