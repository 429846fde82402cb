"""A simulated engine as a target: the real one's workload, load generator, scheduler and metrics on a virtual clock."""

from __future__ import annotations

from typing import Any

from core_engine.simulation.model import NumberedTokenizer, simulated_engine
from experiments.quality.agreement import Agreement, unknown
from experiments.rig import WarmUp, draw_workload
from experiments.simulator.deployment import Deployed
from experiments.spec import BenchSpec
from experiments.targets.in_process import InProcess
from experiments.targets.target import OnPart, ShouldCancel, Target
from experiments.workloads import Workload

LETTERS = 256  # prompts are drawn in bytes: lengths are exact and contents don't matter


class SimulatorTarget(InProcess):
    """One replica of a deployment. tokenizer: a real one, so that prompts are those that a real engine is sent."""

    FRESH = "a fresh simulated engine with an empty pool"

    def __init__(self, deployed: Deployed, tokenizer: Any = None) -> None:
        super().__init__()
        self._deployed = deployed
        self._tokenizer = tokenizer or NumberedTokenizer(min(LETTERS, deployed.spec.vocab_size))

    def describe(self) -> dict[str, Any]:
        return {"kind": "simulator", **self._deployed.profile.to_json()}

    def draw(self, spec: BenchSpec) -> Workload:
        return draw_workload(spec, self._tokenizer)

    def warm_up(self, workload: Workload, should_cancel: ShouldCancel | None = None) -> WarmUp:
        """Nothing gets warm."""
        return WarmUp(0, True)

    def fresh(self) -> Any:
        found = self._deployed
        return simulated_engine(
            found.config, found.times, found.memory, tokenizer=self._tokenizer, acceptance=found.acceptance
        )

    def agreement(
        self,
        candidate: Target,
        workloads: tuple[Workload, Workload],
        records: tuple[dict[str, Any], dict[str, Any]],
        on_part: OnPart = lambda arm, fraction: None,
    ) -> Agreement:
        """Simulated tokens have no content."""
        return unknown("simulated: it answers with numbers, not with text")
