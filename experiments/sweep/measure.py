"""Measures one point: the workload's requests, sent as the point says, to a target that is warm and has empty caches.

Owns how a load is put on a drawn workload, and which targets are warm. Every point of a sweep sends the same requests
in the same order, more of them where more clients wait; rates share one draw of gaps, stretched.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np

from core_engine.variables import Value
from experiments.live import LiveReport
from experiments.rig import Rig, WarmUp, machine
from experiments.spec import BenchSpec
from experiments.sweep.points import Load, Point
from experiments.sweep.spec import SweepSpec
from experiments.targets import Target, measure, target_for
from experiments.targets.target import ShouldCancel
from experiments.workloads import Workload
from experiments.workloads.options import at_rate
from ledger.errors import InputError

NS_PER_S = 1e9
ARRIVAL_STREAM = 0x5EED  # of the seed, apart from the workload's own


class Measure(Protocol):
    """Measures one repeat of a point and returns its run record; InputError and CannotRunError as the target does."""

    def __call__(self, point: Point, repeat: int) -> dict[str, Any]: ...


def under_load(workload: Workload, load: Load, *, arrivals: str, seed: int) -> Workload:
    """The same requests, sent as `load` says; of a conversation the first turn, the others follow their answers.

    arrivals: of a rate, "poisson" or "constant" gaps, or the workload's "own" pattern, stretched.
    """
    if load.own:
        return workload
    first = [place for place, request in enumerate(workload.requests) if request.parent is None]
    own = [workload.requests[place].arrival_ns for place in first]
    times = [0] * len(first) if load.rate_rps is None else _times_ns(own, load.rate_rps, arrivals, seed)
    due = dict(zip(first, times, strict=True))
    requests = tuple(
        replace(request, arrival_ns=due[place]) if place in due else request
        for place, request in enumerate(workload.requests)
    )
    named = "closed loop" if load.concurrency is not None else arrivals if load.rate_rps is not None else "burst"
    return replace(workload, requests=requests, arrivals=named, rate_rps=load.rate_rps, concurrency=load.concurrency)


def _times_ns(own: list[int], rate_rps: float, arrivals: str, seed: int) -> list[int]:
    if arrivals == "own":
        if len(own) < 2 or own[-1] == own[0]:
            raise InputError("--arrivals", arrivals, "poisson or constant: this workload's requests come all at once")
        return at_rate(own, rate_rps)
    gaps = np.ones(len(own)) if arrivals == "constant" else _unit_gaps(len(own), seed)
    return [int(at) for at in np.rint((np.cumsum(gaps) - gaps[0]) / rate_rps * NS_PER_S)]


def _unit_gaps(count: int, seed: int) -> Any:
    """Exponential gaps of mean 1; the first ones are the same however many are drawn."""
    return np.random.default_rng([seed, ARRIVAL_STREAM]).exponential(1.0, size=count)


class TargetMeasure:
    """Points on targets of this process: each is warmed up once, and every run begins with empty caches."""

    def __init__(
        self, spec: SweepSpec, rig: Rig, live: LiveReport, should_cancel: ShouldCancel = lambda: False
    ) -> None:
        self._spec, self._rig, self._live, self._should_cancel = spec, rig, live, should_cancel
        self._around = machine()
        self._warm: dict[tuple[tuple[str, Value], ...], tuple[Target, WarmUp]] = {}

    def __call__(self, point: Point, repeat: int) -> dict[str, Any]:
        bench = run_of(self._spec, point)
        target = self._warm[point.settings][0] if point.settings in self._warm else target_for(bench, self._rig)
        workload = under_load(target.draw(bench), point.load, arrivals=self._spec.arrivals, seed=self._spec.seed)
        if point.settings not in self._warm:
            self._warm[point.settings] = target, target.warm_up(workload, self._should_cancel)
        warmed = self._warm[point.settings][1]
        measured = measure(
            bench,
            target,
            workload,
            around=self._around,
            on_progress=lambda progress: self._live.tick(target, progress),
            should_cancel=self._should_cancel,
        )
        return {**measured.record, "warm_up": {"runs": warmed.runs, "stable": warmed.stable}}


def run_of(spec: SweepSpec, point: Point) -> BenchSpec:
    """A point as the spec of one run, its load left to `under_load`."""
    common = {field.name: getattr(spec, field.name) for field in fields(BenchSpec)}
    own = {"num_requests": point.num_requests, "settings": dict(point.settings), "rate_rps": None, "concurrency": None}
    return BenchSpec(**{**common, **own})
