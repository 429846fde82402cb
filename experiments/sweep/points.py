"""The points of a sweep: the load of each, how many requests make its percentiles worth printing, and its key.

A point is known before it is measured, and its key says what was measured: a killed sweep goes on by these keys.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core_engine.variables import Value
from experiments.sweep.spec import AUTO, CONCURRENCY, RATE, SweepSpec
from experiments.workloads import WorkloadSpec
from experiments.workloads.source import find

# A p95 of fewer than 20 values is their maximum; a p99 takes 100.
FOR_P95, FOR_P99 = 20, 100
# Each client sends at least so many, so that filling and emptying the batch are a small part of the run.
ROUNDS = 4
MOST_REQUESTS = 10_000
ASKED, SYNCHRONOUS, FLAT_OUT, BETWEEN, SEARCHED = "asked", "synchronous", "throughput", "between", "bisection"
# What a point's measurement depends on; objectives, price and limits are judged afterwards.
MEASURED_BY = ("workload", "max_tokens_cap", "max_prompt_tokens", "time_scale", "length_scale", "settings", "seed",
               "arrivals")  # fmt: skip


@dataclass(frozen=True)
class Load:
    """How requests are sent: `concurrency` clients in a closed loop, or `rate_rps`; neither: all at once, or the
    workload's own arrivals with `own`."""

    concurrency: int | None = None
    rate_rps: float | None = None
    own: bool = False

    def text(self) -> str:
        """In words, for tables and progress."""
        if self.concurrency is not None:
            return f"{self.concurrency} at a time"
        if self.rate_rps is not None:
            return f"{self.rate_rps:.4g} requests/s"
        return "as the workload has it" if self.own else "all at once"


@dataclass(frozen=True)
class Point:
    """One point before it is measured. value: on the swept axis, None where all requests come at once. origin: why it
    is there. settings: of the engine, those that were chosen and the variable that is swept."""

    value: Value | None
    load: Load
    origin: str
    num_requests: int
    settings: tuple[tuple[str, Value], ...] = ()

    def label(self, over: str) -> str:
        """Its name in tables and progress."""
        if over not in (CONCURRENCY, RATE, AUTO):
            return f"{over}={self.value}"
        return self.load.text()

    def key(self, spec: SweepSpec, repeat: int) -> str:
        """16 hexadecimal digits of everything that its measurement depends on."""
        asked = {name: spec.to_dict()[name] for name in MEASURED_BY}
        body = json.dumps([asked, asdict(self), repeat], sort_keys=True, default=str)
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As JSON, for a worker elsewhere."""
        return asdict(self)

    @classmethod
    def from_json(cls, point: Mapping[str, Any]) -> Point:
        """A point that `to_json` wrote."""
        settings = tuple((name, value) for name, value in point["settings"])
        return cls(**{**point, "load": Load(**point["load"]), "settings": settings})


def first_points(spec: SweepSpec) -> list[Point]:
    """What can be measured without knowing anything: every value asked for; of auto, one at a time and all at once."""
    if spec.over == AUTO:
        return [point_of(spec, SYNCHRONOUS, Load(concurrency=1)), point_of(spec, FLAT_OUT, Load())]
    return [point_at(spec, value, ASKED) for value in spec.values]


def between(spec: SweepSpec, slow_rps: float, fast_rps: float) -> list[Point]:
    """GuideLLM's rates: evenly spaced from one request at a time to all at once, the latter included."""
    step = (fast_rps - slow_rps) / spec.auto_points
    rates = [slow_rps + step * number for number in range(1, spec.auto_points + 1)]
    # Five digits, so that a sweep that goes on computes the same rates from its stored points.
    return [point_at(spec, float(f"{rate:.5g}"), BETWEEN) for rate in rates if rate > 0]


def point_at(spec: SweepSpec, value: Value, origin: str) -> Point:
    """The point at a value of the swept axis."""
    if spec.of_variable:
        load = Load(spec.concurrency, spec.rate_rps, own=spec.concurrency is None and spec.rate_rps is None)
        return point_of(spec, origin, load, value)
    if spec.over == CONCURRENCY:
        return point_of(spec, origin, Load(concurrency=int(value)), value)
    return point_of(spec, origin, Load(rate_rps=float(value)), value)


def point_of(spec: SweepSpec, origin: str, load: Load, value: Value | None = None) -> Point:
    """A point of a load, with its number of requests."""
    varied: dict[str, Value] = {} if value is None or not spec.of_variable else {spec.over: value}
    settings = tuple(sorted({**spec.settings, **varied}.items()))
    return Point(value, load, origin, requests_of(spec, load), settings)


def requests_of(spec: SweepSpec, load: Load) -> int:
    """At least what was asked for, or enough for a p95; four a client; as many as come within the duration."""
    own = find(spec.workload)
    least = spec.num_requests or (own.num_requests if load.own and isinstance(own, WorkloadSpec) else FOR_P95)
    if load.concurrency is not None and load.concurrency > 1:
        least = max(least, ROUNDS * load.concurrency)
    if load.rate_rps is not None and spec.num_requests is None:
        least = max(least, math.ceil(load.rate_rps * spec.duration_s))
    return min(least, MOST_REQUESTS)
