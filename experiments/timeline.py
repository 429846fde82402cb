"""A run record as segments on a time axis: what each request was doing when. Used by the page and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, Request, emissions
from experiments.metrics.host import host_work
from experiments.store import Store


@dataclass(frozen=True)
class ArmTimeline:
    """What is drawn of one record of an arm: `segments` and `last_token_s` as below, `host` as metrics/host.py."""

    arm: int
    repeat: int
    segments: list[dict[str, Any]]
    last_token_s: float | None
    host: Mapping[str, Any]


def arm_timelines(run_id: str, store: Store) -> tuple[ArmTimeline, ...]:
    """The first repeat of every arm of a run; no other record is read. Errors as `Store.record`."""
    first = dict(reversed(store.record_keys(run_id)))
    return tuple(_arm_timeline(arm, repeat, store.record(run_id, arm, repeat)) for arm, repeat in sorted(first.items()))


def _arm_timeline(arm: int, repeat: int, record: Record) -> ArmTimeline:
    return ArmTimeline(arm, repeat, request_segments(record), last_token_s(record), host_work(record))


def request_segments(record: Record) -> list[dict[str, Any]]:
    """[{"request","row","kind","start_s","end_s"}], kind in queue, prefill, decode, held; times in s from the run's 0.

    Rows are numbered by arrival. Neighbouring steps of one kind are one segment; a step that ran without the request
    leaves a gap, a preemption a queue segment. `held`: finished, but slot and blocks not yet given back.
    """
    place = {step["index"]: (at, step) for at, step in enumerate(record["steps"])}
    ordered = sorted(record["requests"], key=lambda request: request["arrival_ns"])
    return [
        {"request": request["id"], "row": row, "kind": kind, "start_s": start / NS_PER_S, "end_s": end / NS_PER_S}
        for row, request in enumerate(ordered)
        for kind, start, end in _segments(request, place)
        if end > start
    ]


def last_token_s(record: Record) -> float | None:
    """When the run's last token came, in s from its 0; None without tokens."""
    times = [at for request in record["requests"] for at, _ in emissions(request)]
    return max(times) / NS_PER_S if times else None


def _segments(request: Request, place: dict[int, tuple[int, dict[str, Any]]]) -> list[tuple[str, int, int]]:
    """(kind, start, end) in ns of one request, in order."""
    own = [(*place[index], kind) for index, kind, _ in request["steps"] if index in place]
    finish, release = request.get("finish_ns"), request.get("release_ns")
    if not own:
        return [("queue", request["arrival_ns"], finish)] if finish is not None else []
    segments: list[tuple[str, int, int]] = [("queue", request["arrival_ns"], own[0][1]["plan_start_ns"])]
    previous = None
    for at, step, kind in own:
        if previous == (at - 1, kind):
            segments[-1] = (kind, segments[-1][1], step["commit_end_ns"])
        else:
            segments.append((kind, step["plan_start_ns"], step["commit_end_ns"]))
        previous = (at, kind)
    if finish is not None:
        # The last step's commit goes on after the request is done; its bar ends where it finished.
        kind, start, end = segments[-1]
        segments[-1] = (kind, start, max(start, min(end, finish)))
    segments += _preempted(request, own)
    if finish is not None and release is not None:
        segments.append(("held", finish, release))
    return sorted(segments, key=lambda segment: segment[1])


def _preempted(request: Request, own: list[tuple[int, dict[str, Any], str]]) -> list[tuple[str, int, int]]:
    """A queue segment from each preemption to the request's next step, or to its end if there was none."""
    waits = []
    for out, _back in request["preemptions"]:
        before = max([out, *(step["commit_end_ns"] for _, step, _ in own if step["plan_start_ns"] < out)])
        after = [step["plan_start_ns"] for _, step, _ in own if step["plan_start_ns"] >= out]
        end = min(after) if after else request.get("finish_ns")
        if end is not None:
            waits.append(("queue", before, end))
    return waits
