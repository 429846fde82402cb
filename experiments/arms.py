"""The arms of an experiment: one drawn workload each, warmed up, then run in the order that the experiment asks for.

Owns the targets, what every run gave, and what there is to warn of. Knows no statistics, and neither how many arms
there are nor in which order or how often they are run: comparison and factorial do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from experiments.estimate import Estimate, expected_run_s
from experiments.foresight import never_drafted
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.metrics import compute_metrics
from experiments.quality.agreement import Agreement
from experiments.rig import Rig, WarmUp, busy_warning, machine
from experiments.spec import BenchSpec
from experiments.targets import Measured, Target, measure, target_for, warnings_of
from experiments.workloads import Workload


class KeepsRecords(Protocol):
    """Where records go as they come: experiments.store.Store, or a part of a run in it."""

    def add_record(self, run_id: str, arm: int, repeat: int, record: dict[str, Any]) -> None:
        """Store the record of one repeat of one arm."""


class Arms:
    """Arms by number, from 0, the baseline. `specs` are theirs, each a whole spec of one run; `names` is how they are
    called in warnings."""

    def __init__(
        self,
        specs: Sequence[BenchSpec],
        names: Sequence[object],
        *,
        rig: Rig,
        store: KeepsRecords | None,
        run_id: str,
        live: LiveReport,
        should_cancel: Callable[[], bool],
        targets: Sequence[Target] | None = None,
    ) -> None:
        """targets: one a spec, instead of those that the specs ask for."""
        self.specs = tuple(specs)
        self.names = tuple(map(str, names))
        self.live = live
        self.machine = machine()
        self.targets = tuple(targets or (target_for(spec, rig) for spec in self.specs))
        self.workloads: list[Workload] = []
        self.warm_ups: list[WarmUp] = []
        self.metrics: tuple[list[dict[str, Any]], ...] = tuple([] for _ in self.specs)
        self.first_records: dict[int, dict[str, Any]] = {}
        self._store, self._run_id, self._should_cancel = store, run_id, should_cancel

    def prepare(self) -> None:
        """Load, draw and warm up every arm. Cancelled when asked; InputError and CannotRunError as targets raise."""
        self.live.opening(server=any(spec.endpoint is not None for spec in self.specs))
        for spec, target in zip(self.specs, self.targets, strict=True):
            self.check_cancel()
            self.workloads.append(target.draw(spec))
        for arm, target in enumerate(self.targets):
            self.live.phase("warmup", arm=arm)
            self.warm_ups.append(target.warm_up(self.workloads[arm], self._should_cancel))

    def expected_run_s(self) -> tuple[float, ...] | None:
        """What a run of each arm is expected to take, by its warm-up; None where a target shows no steps."""
        found = [
            expected_run_s(workload, warmed.pace, spec.config().max_num_seqs)
            for workload, warmed, spec in zip(self.workloads, self.warm_ups, self.specs, strict=True)
            if warmed.pace is not None
        ]
        return tuple(found) if len(found) == len(self.specs) else None

    def expect(self, looks: Sequence[int], runs_a_repeat: int = 1) -> None:
        """Tell the live report how long all will take, by the warm-up: from the first of `looks` (repeats) to the last.
        Nothing is told where a target shows no steps."""
        run_s = self.expected_run_s()
        if run_s is not None:
            self.live.expect(Estimate(tuple(value * runs_a_repeat for value in run_s), looks[0], looks[-1]))

    def check_cancel(self) -> None:
        """Raise Cancelled when the user asked to stop."""
        if self._should_cancel():
            raise Cancelled

    def run(self, arm: int, repeat: int) -> None:
        """One counted run of an arm, kept; repeat counts from 1."""
        self.check_cancel()
        measured = self.measure(arm, repeat, self.workloads[arm])
        self.keep(arm, repeat, measured)
        self.live.end_run(measured.metrics["output_tokens_per_s"])

    def measure(self, arm: int, repeat: int, workload: Workload) -> Measured:
        """One run of an arm with a workload, counted nowhere yet."""
        target = self.targets[arm]
        return measure(
            self.specs[arm],
            target,
            workload,
            around=self.machine,
            on_begin=lambda: self.live.begin_run(arm, repeat),
            on_progress=lambda progress: self.live.tick(target, progress),
            should_cancel=self._should_cancel,
        )

    def keep(self, arm: int, repeat: int, measured: Measured) -> None:
        """Count a run: its metrics here, its record in the store."""
        if self._store is not None:
            self._store.add_record(self._run_id, arm, repeat, measured.record)
        self.first_records.setdefault(arm, measured.record)
        self.metrics[arm].append(measured.metrics)

    def take(self, arm: int, repeat: int, record: dict[str, Any]) -> None:
        """Count a run that an earlier start has measured and kept."""
        spec = self.specs[arm]
        metrics = compute_metrics(record, price_per_device_hour=spec.price_per_device_hour, slo=spec.slo)
        self.first_records.setdefault(arm, record)
        self.metrics[arm].append(metrics)
        self.live.begin_run(arm, repeat)
        self.live.end_run(metrics["output_tokens_per_s"])

    def repeats(self) -> int:
        """How many repeats every arm has."""
        return min(len(metrics) for metrics in self.metrics)

    def agreement(self, candidate: int, on_part: Callable[[int, float], None]) -> Agreement:
        """Quality of an arm against the baseline; on_part gets (0 baseline or 1 candidate, part done)."""
        pair = (0, candidate)
        return self.targets[0].agreement(
            self.targets[candidate],
            (self.workloads[0], self.workloads[candidate]),
            (self.first_records[0], self.first_records[candidate]),
            lambda place, fraction: on_part(pair[place], fraction),
        )

    def derived(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """What differs between the arms of these derived figures: name -> one value an arm."""
        each = [self.first_records[arm].get("derived", {}) for arm in range(len(self.specs))]
        found = {name: [derived.get(name) for derived in each] for name in names}
        return {name: values for name, values in found.items() if any(value != values[0] for value in values)}

    def warnings(self) -> list[str]:
        """What the runs give cause to warn of."""
        found = [busy_warning(self.machine)]
        for name, warmed in zip(self.names, self.warm_ups, strict=True):
            if not warmed.stable:
                found.append(f"warm-up of {name} did not settle within 10 % in {warmed.runs} runs")
        for arm, (name, metrics) in enumerate(zip(self.names, self.metrics, strict=True)):
            found += warnings_of(self.first_records[arm], name) if metrics else []
            found += sorted({each["offered_load"]["warning"] or "" for each in metrics})
            if metrics and all(never_drafted(each["counters"]) for each in metrics):
                found.append(f"no token was ever drafted with {name}: nothing of its effect could show")
            failed = sum(each["failed"] for each in metrics)
            if failed:
                found.append(f"{failed} requests of {name} failed and are counted in no curve")
        emptied = {(record.get("target") or {}).get("caches") for record in self.first_records.values()}
        if len(emptied) > 1:
            found.append(f"caches were not emptied alike in all arms: {'; '.join(sorted(map(str, emptied)))}")
        return [warning for warning in found if warning]
