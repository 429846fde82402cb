"""What a target shares whose engine runs in this process: one fresh engine a run, driven by the load generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from experiments import loadgen
from experiments.targets.target import OnProgress, ShouldCancel
from experiments.workloads import Workload


class InProcess(ABC):
    """`fresh` makes an engine with an empty pool; `reset` says what that was."""

    FRESH = "a fresh engine with an empty pool"

    def __init__(self) -> None:
        self._engine: Any = None

    @abstractmethod
    def fresh(self) -> Any:
        """A new engine."""

    def reset(self) -> str:
        """The next run's engine; the former pool is let go before there is a new one."""
        self._engine = None
        self._engine = self.fresh()
        return self.FRESH

    def run(
        self, workload: Workload, *, on_progress: OnProgress | None = None, should_cancel: ShouldCancel | None = None
    ) -> dict[str, Any]:
        """Drive the workload; the engine is let go afterwards."""
        if self._engine is None:
            self.reset()
        try:
            return loadgen.run(self._engine, workload, on_progress=on_progress, should_cancel=should_cancel)
        finally:
            self._engine = None

    def snapshot(self) -> dict[str, Any]:
        """The live state of the engine that runs."""
        found: dict[str, Any] = self._engine.snapshot()
        return found
