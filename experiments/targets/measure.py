"""One counted run of a target, and its metrics: a bench does it once, a comparison often, a sweep at each point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.metrics import compute_metrics
from experiments.rig import machine
from experiments.spec import BenchSpec
from experiments.targets.target import OnProgress, ShouldCancel, Target
from experiments.workloads import Workload


@dataclass(frozen=True)
class Measured:
    """The run record and the metrics JSON made of it."""

    record: dict[str, Any]
    metrics: dict[str, Any]


def measure(
    spec: BenchSpec,
    target: Target,
    workload: Workload,
    *,
    around: Mapping[str, Any] | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_progress: OnProgress | None = None,
    should_cancel: ShouldCancel | None = None,
) -> Measured:
    """Reset the target's caches and run `workload` once; price and objectives are the spec's. The target is warm.

    around: what the record's environment says of the machine (rig.machine(), taken now unless given). on_begin is
    called when caches are empty and the run begins. Raises Cancelled, and what the target raises.
    """
    machine_now = machine() if around is None else around
    how = target.reset()
    on_begin()
    record = target.run(workload, on_progress=on_progress, should_cancel=should_cancel)
    record["target"] = {**target.describe(), "caches": how}
    record["environment"] = {**record["environment"], **machine_now}
    metrics = compute_metrics(record, price_per_device_hour=spec.price_per_device_hour, slo=spec.slo)
    return Measured(record, metrics)
