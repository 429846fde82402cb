"""Before a sweep runs: its points, how many requests each sends, about how long it takes, and what can't show.

Runs nothing and loads no weights. Speeds are those of runs that the store has of the same workload and settings; else
of calibrated step times, of runs of other workloads, or of the machine's ceilings, in this order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from core_engine.config import EngineConfig
from experiments.store import Run, Store
from experiments.sweep.points import ROUNDS, Point, first_points
from experiments.sweep.spec import AUTO, CONCURRENCY, SweepSpec
from experiments.workloads import WorkloadSpec
from experiments.workloads.lengths import Lengths
from experiments.workloads.source import find

if TYPE_CHECKING:
    from experiments.sweep.computed_speeds import Computed

LOOKED_AT = 50  # newest runs of the store
ALIKE = ("workload", "settings", "endpoint", "endpoint_model")  # of runs whose speeds tell those of a sweep
DRAWN = 4000  # answers for their mean length
Speeds = list[tuple[float, float]]
"""(requests running at once, output tokens/s), ascending."""


def plan(spec: SweepSpec, store: Store | None) -> dict[str, Any]:
    """{"over","points":[{"label","requests","estimate_s"}],"repeats","later","estimate_s","estimate_is","estimate_how",
    "warnings"}.

    later: points that are known only when others are measured, as a count. estimate_s: of all points known now and
    all repeats, "about" or "at least" so long (estimate_is); None where nothing tells: estimate_how says what would.
    """
    points = first_points(spec)
    speeds, how, is_bound = expected_speeds(spec, store)
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
        "estimate_is": "at least" if is_bound else "about",
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
    more = [point for point in first_points(spec) if spec.num_requests and point.num_requests > spec.num_requests]
    if more:
        told = ", ".join(f"{point.num_requests} at {point.load.concurrency} clients" for point in more)
        asked = f"{spec.num_requests} requests would not keep so many clients busy"
        found.append(f"{asked}: {ROUNDS} a client are sent ({told})")
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
    if spec.endpoint is not None:  # how many it runs at once is not known: the fullest that was seen
        at_once = load.concurrency or speeds[-1][0]
    else:
        seats = EngineConfig.from_settings(dict(point.settings)).max_num_seqs
        at_once = min(load.concurrency or seats, seats)
    return max(scheduled, point.num_requests * tokens / speed_at(speeds, at_once))


def speed_at(speeds: Speeds, at_once: float) -> float:
    """Output tokens/s with so many requests running: the nearest known, in proportion below the smallest."""
    smallest = speeds[0]
    if at_once < smallest[0]:
        return smallest[1] * at_once / smallest[0]
    return min(speeds, key=lambda known: abs(math.log(known[0] / at_once)))[1]


def expected_speeds(spec: SweepSpec, store: Store | None) -> tuple[Speeds, str, bool]:
    """(speeds, where they come from, whether they are only an upper bound); without speeds, what would tell them."""
    if mean_output_tokens(spec) is None:
        return [], "a trace is not read before a run: trilemma bench --dry-run says how many tokens it has", False
    measured = known_speeds(spec, store)
    if measured is not None:
        return *measured, False
    computed = None if spec.endpoint is not None else _computed(spec)
    if computed is not None and not computed.is_bound:
        return computed.speeds, computed.how, False
    elsewhere = known_speeds(spec, store, but=("workload",))
    if elsewhere is not None:
        return elsewhere[0], f"{elsewhere[1]}, of another workload", False
    if computed is not None:
        return computed.speeds, computed.how, True
    if spec.endpoint is not None:
        return [], "nothing of this server was measured yet: a bench of it tells", False
    return [], "nothing like it was measured yet: a bench tells, and trilemma calibrate (20 s) how long at least", False


def _computed(spec: SweepSpec) -> Computed | None:
    from experiments.sweep.computed_speeds import computed_speeds

    config = spec.config_at(spec.values[0] if spec.of_variable else None)
    return computed_speeds(config, mean_prompt_tokens(spec) or 1.0, mean_output_tokens(spec) or 1.0)


def known_speeds(spec: SweepSpec, store: Store | None, but: Sequence[str] = ()) -> tuple[Speeds, str] | None:
    """From the newest bench or sweep with the same workload and settings (`but` those), and where they come from."""
    runs = [] if store is None else store.list_runs(LOOKED_AT)
    for run in runs:
        if run.kind not in ("bench", "sweep") or run.state != "done" or run.result is None:
            continue
        if any(run.spec.get(name) != getattr(spec, name) for name in ALIKE if name not in but):
            continue
        speeds = _speeds_of(run, run.result)
        if speeds:
            return speeds, f"speeds measured in run {run.id}"
    return None


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
    return _mean(source.output_tokens, spec, spec.max_tokens_cap) if isinstance(source, WorkloadSpec) else None


def mean_prompt_tokens(spec: SweepSpec) -> float | None:
    """Of the workload's prompts, with the prefix that they share, as mean_output_tokens."""
    source = find(spec.workload)
    if not isinstance(source, WorkloadSpec):
        return None
    prefix = source.prefixes.tokens * spec.length_scale if source.prefixes is not None else 0.0
    return prefix + _mean(source.prompt_tokens, spec, spec.max_prompt_tokens)


def _mean(lengths: Lengths, spec: SweepSpec, most: int | None) -> float:
    scaled = (tokens * spec.length_scale for tokens in lengths.draw(DRAWN, np.random.default_rng(0)))
    return fmean(tokens if most is None else min(tokens, most) for tokens in scaled)


def _own_rate(spec: SweepSpec) -> float | None:
    source = find(spec.workload)
    return source.rate_rps if isinstance(source, WorkloadSpec) else None
