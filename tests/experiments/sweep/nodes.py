"""A measure for workers in other processes: the fake engine on a clock of its own."""

from __future__ import annotations

import os
from typing import Any

from experiments.live import LiveReport
from experiments.sweep.measure import Measure, TargetMeasure
from experiments.sweep.points import Point
from experiments.sweep.spec import SweepSpec
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock


def fake_measure(spec: SweepSpec) -> Measure:
    """As the test's own: every point on the fake engine, on a virtual clock; 13 clients are refused."""
    clock = VirtualClock()
    inner = TargetMeasure(spec, FakeRig(clock), LiveReport(lambda _: None, arms=1, repeats=1))  # type: ignore[arg-type]

    def measure(point: Point, repeat: int) -> dict[str, Any]:
        if point.value == 13:
            raise InputError("concurrency", 13, "another number")
        record = inner(point, repeat)
        # Each worker of the test counts as a machine of its own kind.
        differs = {"process": os.getpid(), "cpu": f"cpu of {os.getpid()}"} if spec.seed else {"process": os.getpid()}
        return {**record, "environment": {**record["environment"], **differs}}

    return measure


def refuse_measured(spec: SweepSpec) -> Measure:
    """For a sweep that goes on: only what was refused before may be asked again."""

    def measure(point: Point, repeat: int) -> dict[str, Any]:
        assert point.value == 13, "a finished point was measured again"
        raise InputError("concurrency", 13, "another number")

    return measure
