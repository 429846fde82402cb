"""Before a sweep runs: its points, how many requests each sends, about how long it takes, and what can't show.

Runs nothing and loads no model. Speeds are those of runs that the store has of the same workload and settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from core_engine.config import EngineConfig
from experiments.store import Run, Store
from experiments.sweep.points import Point, first_points
from experiments.sweep.spec import AUTO, CONCURRENCY, SweepSpec
from experiments.workloads import WorkloadSpec
from experiments.workloads.source import find

LOOKED_AT = 50  # newest runs of the store
ALIKE = ("workload", "settings", "endpoint", "endpoint_model")  # of runs whose speeds tell those of a sweep
DRAWN = 4000  # answers for their mean length
Speeds = list[tuple[float, float]]
"""(requests running at once, output tokens/s), ascending."""


def plan(spec: SweepSpec, store: Store | None) -> dict[str, Any]:
    """{"over","points":[{"label","requests","estimate_s"}],"repeats","later","estimate_s","estimate_how","warnings"}.

    later: points that are known only when others are measured, as a count. estimate_s: of all points known now and
    all repeats, None where nothing was ever measured like it, or where a rate is only known later.
    """
    points = first_points(spec)
    speeds, how = known_speeds(spec, store)
    each = [seconds_of(spec, point, speeds) for point in points]
    later = spec.auto_points if spec.over == AUTO else 0
    known = [one for one in each if one is not None]
    total = sum(known) * spec.repeats if len(known) == len(each) else None
    if total is not None and later:
        # The rates between are as long as their duration each, but for the last ones, which are slower.
        total += later * spec.duration_s * spec.repeats
    return {
        "over": spec.over,
        "points": [
            {"label": point.label(spec.over), "requests": point.num_requests, "estimate_s": seconds}
            for point, seconds in zip(points, each, strict=True)
        ],
        "repeats": spec.repeats,
        "later": later,
        "searched": bool(spec.find and spec.slo and not spec.of_variable),
        "estimate_s": total,
        "estimate_how": how,
        "warnings": foreseen(spec),
        "provenance": "computed",
    }


def foreseen(spec: SweepSpec) -> list[str]:
    """What speaks against a sweep before it runs, each with the setting that would show it."""
    found = []
    slots = None if spec.of_variable or spec.endpoint is not None else spec.config().max_num_seqs
    if spec.over == CONCURRENCY and slots is not None:
        beyond = [value for value in spec.values if int(value) > slots]
        if beyond:
            found.append(
                f"from {beyond[0]} clients on some wait for one of the {slots} slots;"
                f" --set max_num_seqs={spec.values[-1]} computes them together"
            )
    source = find(spec.workload)
    at_once = isinstance(source, WorkloadSpec) and source.rate_rps is None and source.closed is None
    if spec.of_variable and spec.concurrency is None and spec.rate_rps is None and at_once:
        found.append("all requests come at once; --rate or --concurrency gives a load that lasts")
    return found


def seconds_of(spec: SweepSpec, point: Point, speeds: Speeds) -> float | None:
    """One repeat of a point: its schedule or, where that is longer, its tokens at the speed known for so many at once.

    None where no speed is known.
    """
    load = point.load
    rate = load.rate_rps or (_own_rate(spec) if load.own else None)
    scheduled = point.num_requests / rate if rate else 0.0
    tokens = mean_output_tokens(spec)
    if not speeds or tokens is None:
        return None
    # How many a server runs at once is not known: the fullest that was seen.
    most = speeds[-1][0] if spec.endpoint else EngineConfig.from_settings(dict(point.settings)).max_num_seqs
    at_once = load.concurrency or most
    return max(scheduled, point.num_requests * tokens / speed_at(speeds, at_once))


def speed_at(speeds: Speeds, at_once: float) -> float:
    """Output tokens/s with so many requests running: the nearest known, in proportion below the smallest."""
    smallest = speeds[0]
    if at_once < smallest[0]:
        return smallest[1] * at_once / smallest[0]
    return min(speeds, key=lambda known: abs(math.log(known[0] / at_once)))[1]


def known_speeds(spec: SweepSpec, store: Store | None) -> tuple[Speeds, str]:
    """From the newest bench or sweep with the same workload and settings, and where they come from."""
    runs = [] if store is None else store.list_runs(LOOKED_AT)
    for run in runs:
        if run.kind not in ("bench", "sweep") or run.state != "done" or run.result is None:
            continue
        if any(run.spec.get(name) != getattr(spec, name) for name in ALIKE):
            continue
        speeds = _speeds_of(run, run.result)
        if speeds:
            return speeds, f"speeds measured in run {run.id}"
    return [], "nothing with this workload and these settings was measured yet: a bench tells how long it takes"


def _speeds_of(run: Run, result: Mapping[str, Any]) -> Speeds:
    of_points: Sequence[Mapping[str, Any]] = [result] if run.kind == "bench" else [
        {**point["metrics"], "output_tokens_per_s": point["output_tokens_per_s"]} for point in result["points"]
    ]  # fmt: skip
    # Of a server only what was sent and not answered yet is known.
    pairs = (
        (one["concurrency"]["mean"] or (one.get("in_flight") or {}).get("mean"), one["output_tokens_per_s"])
        for one in of_points
    )
    return sorted((at_once, speed) for at_once, speed in pairs if at_once and speed)


def mean_output_tokens(spec: SweepSpec) -> float | None:
    """Of the workload's answers: the mean of many drawn ones; None for a trace, which is not read before a run."""
    source = find(spec.workload)
    if not isinstance(source, WorkloadSpec):
        return None
    drawn = source.output_tokens.draw(DRAWN, np.random.default_rng(0))
    return fmean(min(tokens * spec.length_scale, spec.max_tokens_cap or tokens * spec.length_scale) for tokens in drawn)


def _own_rate(spec: SweepSpec) -> float | None:
    source = find(spec.workload)
    return source.rate_rps if isinstance(source, WorkloadSpec) else None
