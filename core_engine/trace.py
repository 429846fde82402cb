"""Per-step event log: when each part of a step began and what the scheduler looked like after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core_engine.clock import Clock
from core_engine.plan import StepPlan
from core_engine.request import State
from core_engine.scheduler import Scheduler


@dataclass
class StepTimer:
    """Times of one step in ns."""

    plan_start_ns: int
    execute_start_ns: int = 0
    execute_end_ns: int = 0
    used_blocks: int = 0  # while the step ran: rows that finish in it give theirs back at commit


class Trace:
    """The steps of an engine, and the peaks and sums that follow from them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.output_tokens = 0
        self.peak_used_blocks = 0
        self.peak_used_tokens = 0

    def begin(self, clock: Clock) -> StepTimer:
        """Start timing a step."""
        return StepTimer(plan_start_ns=clock.now_ns())

    def end(self, timer: StepTimer, plan: StepPlan, scheduler: Scheduler, now_ns: int) -> None:
        """Log the step. KV used is tokens with computed KV; reserved is the room of the blocks owned."""
        running = [request for request in scheduler.running if request.state is State.RUNNING]
        ends = {request.id: request.num_computed for request in scheduler.running}
        ends.update({row.request_id: row.end for row in plan.rows})
        used_tokens = sum(ends.values())
        self.output_tokens += sum(row.sample for row in plan.rows)
        self.peak_used_blocks = max(self.peak_used_blocks, timer.used_blocks)
        self.peak_used_tokens = max(self.peak_used_tokens, used_tokens)
        self.steps.append(
            {
                "index": plan.index,
                "plan_start_ns": timer.plan_start_ns,
                "execute_start_ns": timer.execute_start_ns,
                "execute_end_ns": timer.execute_end_ns,
                "commit_end_ns": now_ns,
                "prefill_tokens": sum(row.count for row in plan.rows if row.is_prefill),
                "decode_tokens": sum(row.count for row in plan.rows if not row.is_prefill),
                "num_seqs": len(plan.rows),
                "running": len(running),
                "waiting": len(scheduler.waiting),
                "slots_held": len(scheduler.running) - len(running),
                "kv_used_blocks": timer.used_blocks,
                "kv_used_tokens": used_tokens,
                "kv_reserved_tokens": timer.used_blocks * scheduler.pool.block_size,
            }
        )
