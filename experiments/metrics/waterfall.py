"""Where a request's time went: the parts of its end-to-end latency.

The request's own steps cut its life from arrival to last token into pieces; each piece has one owner:
- before its first step, and from a preemption to its next step: queue;
- its own steps: the executor's part is prefill or decode, plan and commit are overhead;
- between its own steps: stalled while steps ran without it, unexplained in the gaps between steps.
Commit of the last step lies after the last token, so it is outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, Request, emissions, successes

PARTS = ("queue_s", "prefill_s", "decode_s", "overhead_s", "stalled_s", "unexplained_s")
Step = Mapping[str, Any]


def waterfall(record: Record, request: Request) -> dict[str, float] | None:
    """The PARTS of one request and their sum `e2e_s` (last token - arrival), in s. None without a token or a step."""
    return _waterfall({step["index"]: step for step in record["steps"]}, request)


def latency_breakdown(record: Record) -> dict[str, float | None]:
    """Mean of each part over the successful requests, in s; None when there is none to take it from."""
    steps = {step["index"]: step for step in record["steps"]}
    parts = [found for request in successes(record) if (found := _waterfall(steps, request)) is not None]
    return {name: fmean(part[name] for part in parts) if parts else None for name in PARTS}


def _waterfall(steps: Mapping[int, Step], request: Request) -> dict[str, float] | None:
    emitted = emissions(request)
    own = [(steps[index], kind) for index, kind, _ in request["steps"] if index in steps]
    if not emitted or not own:
        return None
    start, end = request["arrival_ns"], emitted[-1][0]
    parts = dict.fromkeys(PARTS, 0.0)
    for step, kind in own:
        executing = _within(start, end, step["execute_start_ns"], step["execute_end_ns"])
        parts["prefill_s" if kind == "prefill" else "decode_s"] += executing
        parts["overhead_s"] += _within(start, end, step["plan_start_ns"], step["commit_end_ns"]) - executing
    queued = _queued_ns(request, own, start)
    for low, high in queued:
        parts["queue_s"] += _within(start, end, low, high)
    parts["stalled_s"] = _stalled(steps, own, queued, start, end)
    parts["unexplained_s"] = (end - start) - sum(parts.values())
    return {name: value / NS_PER_S for name, value in parts.items()} | {"e2e_s": (end - start) / NS_PER_S}


def _within(start: float, end: float, low: float, high: float) -> float:
    """Length in ns of [low, high] inside [start, end]."""
    return max(0.0, min(end, high) - max(start, low))


def _queued_ns(request: Request, own: list[tuple[Step, str]], start: int) -> list[tuple[int, int]]:
    """Intervals in ns before the first own step, and from each preemption to the next own step."""
    intervals = [(start, own[0][0]["plan_start_ns"])]
    for out, _back in request["preemptions"]:
        # A preemption at the end of an own step: that step keeps its time.
        left = max([out, *(step["commit_end_ns"] for step, _ in own if step["plan_start_ns"] < out)])
        following = [step["plan_start_ns"] for step, _ in own if step["plan_start_ns"] >= out]
        if following and (left, min(following)) not in intervals:
            intervals.append((left, min(following)))
    return intervals


def _stalled(
    steps: Mapping[int, Step], own: list[tuple[Step, str]], queued: list[tuple[int, int]], start: int, end: int
) -> float:
    """ns of the steps between the first own step and the last token that had no row of it and were not queue."""
    own_indices = {step["index"] for step, _ in own}
    first = own[0][0]["plan_start_ns"]
    total = 0.0
    for index, step in steps.items():
        low, high = max(step["plan_start_ns"], first, start), min(step["commit_end_ns"], end)
        if index not in own_indices and high > low:
            total += (high - low) - sum(_within(low, high, *interval) for interval in queued)
    return total
