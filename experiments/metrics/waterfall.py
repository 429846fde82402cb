"""Where a request's time went: the parts of its end-to-end latency.

Its life from arrival to last token is cut into pieces, each with one owner:
- queue: before its first step, and from a preemption to its next step;
- prefill, decode: the executor's part of its own steps, and that of whoever proposed tokens for them;
- overhead: host time by its own timers: plan and commit of its own steps and, between steps, the engine's host_ns
  (taking in requests) and the load generator's sender_ns (sending, reporting, looking for a cancel);
- transfer, where prefill and decode are apart: from the commit of its last prefill step until decode has its KV;
- stalled: admitted, but steps ran without it, or the load generator slept;
- unexplained: what is left: between steps, on no timer.
Commit of the last step lies after the last token, so it is outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, Request, emissions, successes
from experiments.metrics.intervals import Intervals
from experiments.statistics import percentile

PARTS = ("queue_s", "prefill_s", "decode_s", "overhead_s", "stalled_s", "unexplained_s")
TRANSFER = "transfer_s"  # of a run whose record has transfers
Step = Mapping[str, Any]


class Waterfalls:
    """The waterfalls of one record; what all requests share is computed once."""

    def __init__(self, record: Record) -> None:
        self._steps = {step["index"]: step for step in record["steps"]}
        steps = Intervals((step["plan_start_ns"], step["commit_end_ns"]) for step in record["steps"])
        sender = record.get("sender_ns") or {}
        busy = [pair for kind, pairs in sender.items() if kind != "sleep" for pair in pairs]
        self._all_steps = steps
        self._host = Intervals([*(record.get("host_ns") or ()), *busy]).without(steps)
        self._asleep = Intervals(sender.get("sleep") or ()).without(steps).without(self._host)
        self._transfers: dict[str, list[tuple[int, int]]] = {}
        for moved in record.get("transfers") or ():
            self._transfers.setdefault(moved["id"], []).append((moved["ready_ns"], moved["import_end_ns"]))
        self._parts = parts_of(record)
        self._whole_steps = {step["index"]: _whole_step(step) for step in record["steps"]}

    def _inside(self, step: Step, start: int, end: int) -> tuple[float, float]:
        """Of a step in ns what lies in [start, end]: executing with what belongs to it, and all of it."""
        first, last, executing, whole = self._whole_steps[step["index"]]
        if start <= first and last <= end:  # nearly every step of a request
            return executing, whole
        executing = _within(start, end, step["execute_start_ns"], step["execute_end_ns"]) + _drafting(start, end, step)
        return executing, _within(start, end, step["plan_start_ns"], step["commit_end_ns"])

    def of(self, request: Request) -> dict[str, float] | None:
        """The `parts` of a request and their sum `e2e_s` (last token - arrival), in s. None without a token or a step.

        Unexplained is what the other parts leave: the sum is exact by construction, and unexplained is never hidden.
        """
        emitted = emissions(request)
        own = [(self._steps[index], kind) for index, kind, _ in request["steps"] if index in self._steps]
        if not emitted or not own:
            return None
        start, end = request["arrival_ns"], emitted[-1][0]
        parts = dict.fromkeys(self._parts, 0.0)
        own_ns = 0.0
        for step, kind in own:
            executing, whole = self._inside(step, start, end)
            parts["prefill_s" if kind == "prefill" else "decode_s"] += executing
            parts["overhead_s"] += whole - executing
            own_ns += whole
        queued = Intervals(_queued_ns(request, own, start))
        parts["queue_s"] = queued.within(start, end)
        moved = Intervals(self._transfers.get(request["id"], ())).without(queued)
        if TRANSFER in parts:
            parts[TRANSFER] = moved.within(start, end)
        steps_ns = 0
        for low, high in Intervals([(start, end)]).without(queued).without(moved).pairs():
            steps_ns += self._all_steps.within(low, high)
            parts["overhead_s"] += self._host.within(low, high)
            parts["stalled_s"] += self._asleep.within(low, high)
        parts["stalled_s"] += steps_ns - own_ns
        parts["unexplained_s"] = (end - start) - sum(parts.values())
        return {name: value / NS_PER_S for name, value in parts.items()} | {"e2e_s": (end - start) / NS_PER_S}


def waterfall(record: Record, request: Request) -> dict[str, float] | None:
    """The waterfall of one request; see `Waterfalls.of`. For all requests of a record make one `Waterfalls`."""
    return Waterfalls(record).of(request)


def waterfalls(record: Record) -> list[tuple[Request, dict[str, float]]]:
    """(request, waterfall) of every successful request that has one, in the record's order."""
    of = Waterfalls(record).of
    return [(request, found) for request in successes(record) if (found := of(request)) is not None]


def latency_breakdown(record: Record, parts: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Mean of each part over the waterfalls of a record's requests, in s; None when there is none to take it from."""
    return {name: fmean(part[name] for part in parts) if parts else None for name in parts_of(record)}


def parts_of(record: Record) -> tuple[str, ...]:
    """The parts of latency that a record tells."""
    return (*PARTS, TRANSFER) if "transfers" in record else PARTS


def unexplained_of(found: Iterable[Mapping[str, float]]) -> dict[str, float | int | None]:
    """{"p50","p99","n"} over waterfalls of unexplained_s / e2e_s, 0..1."""
    shares = [parts["unexplained_s"] / parts["e2e_s"] for parts in found if parts["e2e_s"] > 0]
    return {"p50": percentile(shares, 50), "p99": percentile(shares, 99), "n": len(shares)}


def _drafting(start: float, end: float, step: Step) -> float:
    """Time in ns that proposing tokens took, and reading hidden states for it; 0 in steps without speculation."""
    drafted = _within(start, end, step["plan_start_ns"], step["plan_start_ns"] + step.get("draft_ns", 0))
    observed = step["execute_end_ns"] + step.get("observe_ns", 0)
    return drafted + _within(start, end, step["execute_end_ns"], observed)


def _whole_step(step: Step) -> tuple[int, int, float, float]:
    """When a step's times begin and end, and what `_inside` says of a step that lies inside as a whole."""
    first, last = step["plan_start_ns"], max(step["commit_end_ns"], step["execute_end_ns"] + step.get("observe_ns", 0))
    last = max(last, first + step.get("draft_ns", 0))
    executing = _within(first, last, step["execute_start_ns"], step["execute_end_ns"]) + _drafting(first, last, step)
    return first, last, executing, _within(first, last, first, step["commit_end_ns"])


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
        if following:
            intervals.append((left, min(following)))
    return intervals
