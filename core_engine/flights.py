"""Steps on their way: launched, foreseen and launched behind another, landed or given up.

Owns the order in which a device gets its steps, so that it always has the next one where that can be foreseen
(core_engine/foreseen.py). Knows no text and no requests beyond the scheduler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from core_engine.executor.base import Executor, Launched, LaunchingExecutor
from core_engine.foreseen import foreseen_plan, still_running
from core_engine.plan import StepPlan, StepResult
from core_engine.scheduler import Scheduler


@dataclass(frozen=True)
class Flight:
    """A step that was launched, or waits for `land` to be executed. ahead: behind one that was still being computed.

    kept: places of plan's rows among those that were launched.
    """

    plan: StepPlan
    launched: Launched | None
    ahead: bool = False
    kept: tuple[int, ...] | None = None


class Flights:
    """At most two steps: the one that the engine waits for, and one behind it."""

    def __init__(self, executor: Executor, scheduler: Scheduler, most_tokens: int, *, ahead: bool) -> None:
        self._executor = executor
        self._device = cast(LaunchingExecutor, executor) if ahead and executor.runs_ahead else None
        self._scheduler = scheduler
        self._most_tokens = most_tokens
        self._behind: Flight | None = None

    def launch(self, plan: StepPlan) -> Flight:
        """Begin a planned step. What can't be begun is as if it had not been planned: the error is passed on."""
        try:
            return Flight(plan, None if self._device is None else self._device.launch(plan))
        except BaseException:
            self._scheduler.rollback(plan)
            raise

    def arriving(self) -> Flight | None:
        """The step behind the last one, with the rows of requests that still run; None when there is none."""
        flight, self._behind = self._behind, None
        if flight is None:
            return None
        kept = still_running(self._scheduler, flight.plan)
        if not kept:
            return None
        rows = tuple(flight.plan.rows[place] for place in kept)
        return replace(flight, plan=replace(flight.plan, rows=rows), kept=kept)

    def land(self, flight: Flight, now_ns: int) -> StepResult:
        """The result of a step, after the next one has been launched behind it where that can be foreseen.

        When a step fails, both are as if they had not been planned, and the error is passed on. Where KV is quantized
        by block, the step behind has overwritten the open blocks that a second try would begin with: those requests
        are computed again.
        """
        try:
            if self._device is None or flight.launched is None:
                return self._executor.execute(flight.plan)
            self._launch_behind(flight, flight.launched, now_ns)
            return _only(flight.launched.result(), flight.kept)
        except BaseException:
            behind, self._behind = self._behind, None
            if behind is not None:
                self._scheduler.rollback(behind.plan)
            self._scheduler.rollback(flight.plan)
            if behind is not None and self._scheduler.open_blocks:
                self._scheduler.compute_again(behind.plan, now_ns)
            raise

    def _launch_behind(self, flight: Flight, launched: Launched, now_ns: int) -> None:
        assert self._device is not None
        plan = foreseen_plan(self._scheduler, flight.plan, self._most_tokens, now_ns)
        if plan is None:
            return
        try:
            self._behind = Flight(plan, self._device.launch(plan, launched), ahead=True)
        except BaseException:
            self._scheduler.rollback(plan)
            raise


def _only(result: StepResult, kept: Sequence[int] | None) -> StepResult:
    """The result of the rows at those places; a foreseen step has tokens alone."""
    if kept is None or len(kept) == len(result.tokens):
        return result
    return StepResult(tuple(result.tokens[place] for place in kept), ((),) * len(kept), model_s=result.model_s)
