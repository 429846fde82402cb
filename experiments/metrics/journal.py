"""Reading the journal of KV blocks: which events led to the state in which a step executed, and which followed it.

A record's steps carry kv_events [[what, request id, blocks], ...] in order. What is one of take (a new block), share
(one found in the prefix cache), drop, publish (now in the prefix index) and evict (no longer in it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.metrics.events import Record

Event = Sequence[Any]


def journal(record: Record) -> Iterator[tuple[list[Event], list[Event]]]:
    """For each step (events before its execution, drops at its commit).

    A drop is one at the commit when the request was released after the execution began. One that was preempted for this
    step dropped its blocks before.
    """
    released = {request["id"]: request.get("release_ns") for request in record["requests"]}
    for step in record["steps"]:
        before: list[Event] = []
        after: list[Event] = []
        preempted, start = set(step.get("preempted", ())), step["execute_start_ns"]
        for event in step.get("kv_events", ()):
            what, request_id, _ = event
            release = released.get(request_id)
            at_commit = what == "drop" and request_id not in preempted and release is not None and release > start
            (after if at_commit else before).append(event)
        yield before, after
