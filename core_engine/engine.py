"""Engine: whole answers, scores and records on top of stepping. Usable without the rest of the project.

engine = Engine(config, load_model(config))
engine.generate(["The capital of France is"], SamplingParams(max_tokens=8))
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from core_engine.accounts import predicted_ledger
from core_engine.answers import Answers
from core_engine.outputs import Completion, Output
from core_engine.parallel.executor import ParallelExecutor
from core_engine.stepping import SteppingEngine
from ledger.memory import MemoryLedger

__all__ = ["Completion", "Engine", "Output"]


class Engine(SteppingEngine, Answers):
    """One model, one KV pool, one scheduler. Not thread-safe: add, abort and step from one thread.

    Ended requests and steps are kept for `record` up to a bound, and let go by `clear_history`.
    """

    def _advance(self) -> None:
        """A step for a caller that waits, so that nobody else comes before it."""
        before, self.scheduler.more_arrivals = self.scheduler.more_arrivals, False
        try:
            self.step()
        finally:
            self.scheduler.more_arrivals = before

    def reset_prefix_cache(self) -> int:
        """Let the next requests find no prefix and no stored answer; what runs goes on. Returns the blocks that could
        have been found."""
        if self.caches is not None:
            self.caches.clear()
        return self.scheduler.layout.forget_prefixes()

    # -- what is known about the run -----------------------------------------------------------------------------

    @cached_property
    def predicted(self) -> MemoryLedger:
        """What the ledger says of these settings."""
        return predicted_ledger(self)

    def derived(self) -> dict[str, int]:
        """What follows from the settings, listed in comparisons as changed because of the variable."""
        return {
            "num_kv_blocks": self.pool.num_blocks,
            "max_position": self.max_position,
            "kv_pool_bytes": self.executor.kv_pool_bytes(),
            "kv_tail_bytes": self.executor.kv_tail_bytes(),
            "weights_bytes": self.loaded.weights.num_bytes(),
            "activation_peak_bytes": self.executor.activation_peak_bytes(),
            "ranks": len(self.executor.parts) if isinstance(self.executor, ParallelExecutor) else 1,
        }

    def snapshot(self) -> dict[str, Any]:
        """The live state for a page: queue, blocks, requests and the memory ledger. Cheap enough for 4 a second."""
        from core_engine.live import snapshot

        return snapshot(self)

    def record(self) -> dict[str, Any]:
        """Raw events of everything that is kept; times in ns on the engine's clock."""
        from core_engine.live import record

        return record(self)

    def clear_history(self) -> None:
        """Let go of ended requests and of the trace; the prefix cache stays."""
        self.sessions.forget([session.request for session in self.sessions.ended.values()])
        self.trace.clear()
        if isinstance(self.executor, ParallelExecutor):
            self.executor.counters.clear()
        self.scheduler.num_preemptions = 0
        self.speculation.clear()
        self.scheduler.layout.restate(self.scheduler.running)
