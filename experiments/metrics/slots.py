"""How full the batch was: slots held by finished requests, and how many requests were running at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from experiments.metrics.events import Record


def slots(record: Record) -> dict[str, float | int | None]:
    """{"idle_slot_steps","busy_slot_steps","idle_share"}: slot-steps that a finished request kept to itself.

    idle_share = sum over steps of slots held by finished requests / (those + rows computed). A slot is held in a step
    when its request had finished before the step was executed and was released only later. None without steps.
    """
    starts = sorted(_moments(record, "finish_ns"))
    ends = sorted(_moments(record, "release_ns"))
    idle = sum(bisect_right(starts, at) - bisect_right(ends, at) for at in _execute_starts(record))
    busy = sum(step["num_seqs"] for step in record["steps"])
    return {
        "idle_slot_steps": idle if record["steps"] else None,
        "busy_slot_steps": busy if record["steps"] else None,
        "idle_share": idle / (idle + busy) if idle + busy else None,
    }


def _moments(record: Record, key: str) -> list[int]:
    """Of the requests that held their slot after their end."""
    found = (request for request in record["requests"] if request["admit_ns"] is not None)
    held = [r for r in found if r["finish_ns"] is not None and r["release_ns"] is not None]
    return [request[key] for request in held if request["release_ns"] > request["finish_ns"]]


def _execute_starts(record: Record) -> list[int]:
    return [step["execute_start_ns"] for step in record["steps"]]


class Running:
    """How many requests were admitted and unfinished at a moment; a preempted one is not running until it is back."""

    def __init__(self, record: Record) -> None:
        admitted = [request for request in record["requests"] if request["admit_ns"] is not None]
        backs = [(out, back) for request in admitted for out, back in request["preemptions"]]
        self._in = sorted([r["admit_ns"] for r in admitted] + [back for _, back in backs if back is not None])
        # One that ends while it is preempted has left already.
        ended = [r["finish_ns"] for r in admitted if r["finish_ns"] is not None and not _ended_preempted(r)]
        self._out = sorted(ended + [out for out, _ in backs])

    def at(self, moment_ns: int) -> int:
        """Requests running at a moment, in ns on the record's clock."""
        return bisect_right(self._in, moment_ns) - bisect_right(self._out, moment_ns)


def _ended_preempted(request: Any) -> bool:
    return bool(request["preemptions"]) and request["preemptions"][-1][1] is None


def concurrency(record: Record) -> dict[str, float | int | None]:
    """{"mean","peak"} of the running requests: admitted, unfinished, not preempted. The mean is weighted with the
    steps' execution time, so that waiting for arrivals does not lower it. None without steps."""
    running = Running(record)
    counts = [running.at(at) for at in _execute_starts(record)]
    weights = [step["execute_end_ns"] - step["execute_start_ns"] for step in record["steps"]]
    total = sum(weights)
    mean = sum(n * weight for n, weight in zip(counts, weights, strict=True)) / total if total else None
    return {"mean": mean, "peak": max(counts, default=None)}


def prefix(record: Record) -> dict[str, float | int | None]:
    """{"hit_rate","hit_tokens","prefill_tokens"}: what the prefix cache found, and the prompt tokens still computed.

    hit_rate = tokens found / tokens looked up at admissions; None when the cache is off or the record is older than it.
    """
    hits = [request["prefix_hit_tokens"] for request in record["requests"] if "prefix_hit_tokens" in request]
    return {
        "hit_rate": record["counters"].get("prefix_hit_rate"),
        "hit_tokens": sum(hits) if hits else None,
        "prefill_tokens": sum(step["prefill_tokens"] for step in record["steps"]) if record["steps"] else None,
    }
