"""The interface of a target. Whoever measures (bench, comparison, sweep) knows this and no engine and no server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from experiments.loadgen import Progress
from experiments.quality.agreement import Agreement
from experiments.rig import WarmUp
from experiments.spec import BenchSpec
from experiments.workloads import Workload

OnProgress = Callable[[Progress], None]
ShouldCancel = Callable[[], bool]
OnPart = Callable[[int, float], None]
"""Called with (arm, part done from 0 to 1) during a quality pass, with 0 when an arm begins; may raise Cancelled."""


class Target(Protocol):
    """One thing under load. Used by one thread; calls come in the order draw, warm_up, then (reset, run) a repeat."""

    def describe(self) -> dict[str, Any]:
        """What is driven, as JSON without secrets: {"kind": "engine" | "endpoint" | ..., ...}; kept in every record."""
        ...

    def draw(self, spec: BenchSpec) -> Workload:
        """The workload of `spec`, cut by the target's tokenizer; InputError for what the workload doesn't accept."""
        ...

    def warm_up(self, workload: Workload, should_cancel: ShouldCancel | None = None) -> WarmUp:
        """Run a short piece of the workload until its duration is stable; nothing of it is counted.

        CannotRunError when the target is not there. Cancelled when `should_cancel` says so.
        """
        ...

    def reset(self) -> str:
        """Forget what earlier runs left in caches, before each run of each arm; returns in one line how it was done."""
        ...

    def run(
        self, workload: Workload, *, on_progress: OnProgress | None = None, should_cancel: ShouldCancel | None = None
    ) -> dict[str, Any]:
        """Drive `workload` once and return the run record, its times in ns from the start of the run.

        A request that fails is a failed request of the record. Raises Cancelled.
        """
        ...

    def snapshot(self) -> dict[str, Any]:
        """State during `run`: {"output_tokens","running","waiting","step_s","blocks":{"used"}}; None is unknown."""
        ...

    def agreement(
        self,
        candidate: Target,
        workloads: tuple[Workload, Workload],
        records: tuple[dict[str, Any], dict[str, Any]],
        on_part: OnPart = lambda arm, fraction: None,
    ) -> Agreement:
        """Quality of `candidate`, a target of the same kind, against this one, by a run of each and a pass after."""
        ...
