"""What every executor offers the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from core_engine.plan import StepPlan, StepResult


class Launched(Protocol):
    """A step that a device computes while the host goes on."""

    def result(self) -> StepResult:
        """Wait for it; raises what went wrong there."""
        ...


class Executor(Protocol):
    """Runs plans against its own KV storage."""

    num_blocks: int
    runs_ahead: bool  # whether it has `launch` (LaunchingExecutor)
    needs_hidden: bool  # whether results have to bring hidden states: set by the engine, False before

    def execute(self, plan: StepPlan) -> StepResult:
        """Write the rows' KV, attend, and sample or score where the plan asks."""
        ...

    def kv_pool_bytes(self) -> int:
        """Bytes of the blocks that requests can own, really allocated."""
        ...

    def kv_tail_bytes(self) -> int:
        """Bytes of the full-precision blocks that a quantized format keeps for running requests, beside the pool."""
        ...

    def padding_bytes(self) -> int:
        """Bytes of the block that padding tokens write to."""
        ...

    def activation_peak_bytes(self) -> int:
        """Largest memory that a step may need beside weights and KV pool: measured at start-up, and a padding block."""
        ...


@dataclass(frozen=True)
class CaptureCost:
    """What capturing steps took: graphs, seconds, and device bytes that they keep for themselves."""

    graphs: int
    seconds: float
    num_bytes: int


class LaunchingExecutor(Executor, Protocol):
    """One whose device computes apart from the host."""

    def launch(self, plan: StepPlan, after: Launched | None = None) -> Launched:
        """Begin a step and return at once. Tokens that are PENDING in the plan are those that `after`, the step
        launched before it, gives for the same requests."""
        ...
