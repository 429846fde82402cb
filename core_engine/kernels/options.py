"""How a step is computed, apart from what it computes: each option switches one optimisation of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.config import EngineConfig

AUTO_SPLITS = 0


@dataclass(frozen=True)
class StepOptions:
    """one_call: the step is one call, what a captured graph is on a GPU; else every operator is called by itself.

    fused_ops: q/k/v as one product, gate/up as one, activation and residual inside the products; else each by itself.
    flash: scores are never stored whole; else the queries x keys matrix of a row is.
    kv_splits: ranges that a single query's keys are cut into, AUTO_SPLITS for as many as fill the threads.
    """

    one_call: bool = True
    fused_ops: bool = True
    flash: bool = True
    kv_splits: int = AUTO_SPLITS

    @classmethod
    def from_config(cls, config: EngineConfig) -> StepOptions:
        """The options that a configuration asks for."""
        return cls(
            one_call=config.graph != "off",
            fused_ops=config.fused_ops == "on",
            flash=config.attention == "flash",
            kv_splits=AUTO_SPLITS if config.kv_splits == "auto" else int(config.kv_splits),
        )
