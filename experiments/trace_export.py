"""A run record as a Chrome trace (chrome://tracing, Perfetto): the Trace Event Format's JSON object form.

Process 1 is the engine: a track of steps with plan, execute and commit, one of host work between steps, and counters.
Process 2 is the requests: a track each with queue, prefill, decode and held slices. Times in µs from the run's 0.
Format: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.kv_trace import by_arrival
from experiments.metrics.events import Record
from experiments.metrics.kv import EXTERNAL, has_kv, kinds_by_step
from experiments.timeline import request_segments

ENGINE, REQUESTS = 1, 2
STEPS, HOST = 1, 2
NS_PER_US = 1000
PHASES = (
    ("plan", "plan_start_ns", "execute_start_ns"),
    ("execute", "execute_start_ns", "execute_end_ns"),
    ("commit", "execute_end_ns", "commit_end_ns"),
)


def chrome_trace(record: Record) -> dict[str, Any]:
    """{"traceEvents","displayTimeUnit","otherData"} of one record; events in order of time, names of tracks first."""
    events = [*_step_slices(record), *_host_slices(record), *_counters(record), *_request_slices(record)]
    return {
        "traceEvents": [*_names(record), *sorted(events, key=lambda event: event["ts"])],
        "displayTimeUnit": "ms",
        "otherData": {
            "provenance": record["provenance"],
            "workload": str((record.get("workload") or {}).get("name", "")),
            **{name: str(value) for name, value in record["config"].items()},
        },
    }


def _us(moment_ns: float) -> float:
    return round(moment_ns / NS_PER_US, 3)


def _slice(name: str, start_ns: float, end_ns: float, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "cat": "request" if pid == REQUESTS else "engine", "pid": pid, "tid": tid}
    return {**event, "ts": _us(start_ns), "dur": _us(max(0, end_ns - start_ns)), "args": args}


def _step_slices(record: Record) -> Iterator[dict[str, Any]]:
    for step in record["steps"]:
        shown = {name: step[name] for name in ("index", "prefill_tokens", "decode_tokens", "num_seqs")}
        for name, start, end in PHASES:
            yield _slice(name, step[start], step[end], ENGINE, STEPS, **shown)


def _host_slices(record: Record) -> Iterator[dict[str, Any]]:
    named = [("add", pair) for pair in record.get("host_ns") or ()]
    named += [(kind, pair) for kind, pairs in (record.get("sender_ns") or {}).items() for pair in pairs]
    for name, (start, end) in named:
        yield _slice(name, start, end, ENGINE, HOST)


def _counters(record: Record) -> Iterator[dict[str, Any]]:
    for step in record["steps"]:
        values = {"running": step["running"], "waiting": step["waiting"], "held": step["slots_held"]}
        yield _counter("requests", step["commit_end_ns"], values)
    if has_kv(record):
        for step, kinds in zip(record["steps"], kinds_by_step(record), strict=True):
            stacked = {name: tokens for name, tokens in kinds.items() if name != EXTERNAL}
            yield _counter("KV tokens", step["execute_start_ns"], stacked)
            yield _counter("KV external tokens", step["execute_start_ns"], {EXTERNAL: kinds[EXTERNAL]})
    yield from _device_counters(record)


def _device_counters(record: Record) -> Iterator[dict[str, Any]]:
    """A counter a field of the telemetry, where there is any."""
    found = record.get("telemetry") or {}
    for name, values in (found.get("samples") or {}).items():
        for moment_ns, value in zip(found["t_ns"], values or (), strict=False):
            if value is not None:
                yield _counter(f"NVML {name}", moment_ns, {name: value})


def _counter(name: str, moment_ns: int, values: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": ENGINE, "tid": 0, "ts": _us(moment_ns), "args": values}


def _request_slices(record: Record) -> Iterator[dict[str, Any]]:
    for segment in request_segments(record):
        start, end = segment["start_s"] * 1e9, segment["end_s"] * 1e9
        yield _slice(segment["kind"], start, end, REQUESTS, segment["row"] + 1, request=segment["request"])
    for row, request in enumerate(by_arrival(record)):
        for out, _back in request["preemptions"]:
            yield {
                "ph": "i", "name": "preempted", "cat": "request", "s": "t", "pid": REQUESTS, "tid": row + 1,
                "ts": _us(out), "args": {"request": request["id"]},
            }  # fmt: skip


def _names(record: Record) -> Iterator[dict[str, Any]]:
    """Metadata events that name processes and tracks, and keep the requests in order of arrival."""
    tracks = [(ENGINE, STEPS, "steps"), (ENGINE, HOST, "host work between steps")]
    tracks += [(REQUESTS, row + 1, request["id"]) for row, request in enumerate(by_arrival(record))]
    for pid, name in ((ENGINE, "engine"), (REQUESTS, "requests")):
        yield _metadata("process_name", pid, 0, {"name": name})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
    for pid, tid, name in tracks:
        yield _metadata("thread_name", pid, tid, {"name": name})
        yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}
