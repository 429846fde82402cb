"""One record as the figures of the trace page: where time and KV memory went, request by request and kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.kv_trace import BlockGrid, block_grid, by_arrival, has_blocks, kinds_over_time, pool_of
from experiments.metrics.events import NS_PER_S, Record, Request, succeeded
from experiments.metrics.host import host_work
from experiments.metrics.kv import EXTERNAL, KINDS, kinds_by_step, kv_waste
from experiments.metrics.slots import concurrency, prefix, slots
from experiments.metrics.waterfall import Waterfalls, unexplained_of
from experiments.store import Run
from experiments.telemetry_view import TelemetryView, telemetry_view
from experiments.workloads.source import short_name

Found = list[tuple[Request, dict[str, float]]]


def waterfall_rows(found: Found) -> list[dict[str, Any]]:
    """{"request","row","tokens", the parts and "e2e_s" in s} of each answered request, in order of arrival."""
    return [
        {"request": request["id"], "row": row, "tokens": sum(n for _, n in request["emissions"]), **parts}
        for row, (request, parts) in enumerate(found)
    ]


def waste_rows(waste: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"kind","tokens","bytes","share"} of each kind of KV, external and the sum of what is wasted last."""
    return [{"kind": kind, **waste[kind]} for kind in (*KINDS, EXTERNAL, "wasted")]


def prefix_rows(record: Record) -> list[dict[str, Any]]:
    """{"request","asked","hit","share"}: prompt tokens of each request and those found in the prefix cache.

    A request that was preempted looks its tokens up again, so its hits may exceed its prompt; the share stops at 1.
    """
    rows = []
    for request in by_arrival(record):
        asked, hit = request["prompt_tokens"], request.get("prefix_hit_tokens", 0)
        rows.append({"request": request["id"], "asked": asked, "hit": hit, "share": min(1.0, hit / asked)})
    return rows


def preemption_rows(record: Record) -> list[dict[str, Any]]:
    """{"request","out_s","back_s","waited_s"} of each preemption, in order of time; None: never back."""
    rows = [
        {
            "request": request["id"],
            "out_s": out / NS_PER_S,
            "back_s": None if back is None else back / NS_PER_S,
            "waited_s": None if back is None else (back - out) / NS_PER_S,
        }
        for request in record["requests"]
        for out, back in request["preemptions"]
    ]
    return sorted(rows, key=lambda row: row["out_s"])


def step_of(record: Record, share: float) -> int:
    """Place of the step that was executing at `share` (0..1) of the run, or the last before it."""
    moment = share * max(step["commit_end_ns"] for step in record["steps"])
    places = [place for place, step in enumerate(record["steps"]) if step["execute_start_ns"] <= moment]
    return places[-1] if places else 0


@dataclass(frozen=True)
class Blocks:
    """The KV pool of one record over time. end_s and pool_bytes are what charts of two records share axes by."""

    grid: BlockGrid
    series: list[dict[str, float]]
    num_blocks: int
    block_size: int
    end_s: float
    pool_bytes: float
    waste: Mapping[str, Any]


@dataclass(frozen=True)
class TraceView:
    """All of one record that the page draws. `blocks` is None for a run recorded before KV was kept by kind."""

    waterfalls: list[dict[str, Any]]
    unexplained: Mapping[str, Any]
    host: Mapping[str, Any]
    slots: Mapping[str, Any]
    concurrency: Mapping[str, Any]
    prefix: Mapping[str, Any]
    prefix_rows: list[dict[str, Any]]
    prefix_on: bool
    preemptions: list[dict[str, Any]]
    blocks: Blocks | None
    telemetry: TelemetryView


def trace_view(record: Record) -> TraceView:
    """Everything the page draws of one record, computed once."""
    of = Waterfalls(record).of
    found = [(request, parts) for request in by_arrival(record) if (parts := of(request)) is not None]
    return TraceView(
        waterfalls=waterfall_rows(found),
        unexplained=unexplained_of(parts for request, parts in found if succeeded(request)),
        host=host_work(record),
        slots=slots(record),
        concurrency=concurrency(record),
        prefix=prefix(record),
        prefix_rows=prefix_rows(record),
        prefix_on=record["config"].get("prefix_cache") == "on",
        preemptions=preemption_rows(record),
        blocks=_blocks(record),
        telemetry=telemetry_view(record),
    )


def _blocks(record: Record) -> Blocks | None:
    if not has_blocks(record):
        return None
    rows = kinds_by_step(record)
    waste = kv_waste(record, rows)
    if waste is None:
        return None
    pool = pool_of(record)
    return Blocks(
        grid=block_grid(record),
        series=kinds_over_time(record, rows=rows),
        num_blocks=pool.num_blocks,
        block_size=pool.block_size,
        end_s=pool.end_s,
        pool_bytes=pool.num_blocks * pool.block_size * pool.bytes_per_token,
        waste=waste,
    )


def arms_of(run: Run) -> list[str]:
    """What the arms of a run are called: the two values of a comparison, the workload of a bench."""
    if run.kind == "compare":
        first, second = (str(value) for value in run.spec["values"])
        return [first, second] if first != second else [f"{first} (A)", f"{second} (B)"]
    return [short_name(str(run.spec.get("workload", "")))]
