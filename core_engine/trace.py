"""The event log of an engine: what each step did, when, and where the KV pool stood.

Bounded: of the steps only the last `keep` stay. Sums and peaks count all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core_engine.kv_layout import KVEvent
from core_engine.kv_usage import kv_usage
from core_engine.plan import StepPlan, StepResult
from core_engine.request import State
from core_engine.scheduler import Scheduler
from core_engine.speculation.statistics import Outcome

KEPT = 100_000


@dataclass
class StepTimer:
    """Times of one step in ns, and what only can be seen while it runs."""

    plan_start_ns: int
    more_arrivals: bool
    ahead: bool = False  # planned and launched while the step before was being computed
    execute_start_ns: int = 0
    execute_end_ns: int = 0
    model_s: float | None = None  # of the execution, in the decoder
    draft_ns: int = 0  # from plan_start_ns on: proposing tokens
    observe_ns: int = 0  # after execute_end_ns: a proposer reading hidden states
    outcomes: list[Outcome] = field(default_factory=list)  # of the decode rows, with speculation
    parallel: dict[str, Any] | None = None  # what ranks handed over and waited for
    used_blocks: int = 0
    kv: dict[str, int] | None = None
    kv_events: list[KVEvent] = field(default_factory=list)  # that led to where the blocks were meanwhile

    def drafting(self) -> dict[str, Any]:
        """What a step's record says of drafts; nothing without speculation."""
        if not (self.draft_ns or self.outcomes):
            return {}
        return {
            "draft_ns": self.draft_ns,
            "observe_ns": self.observe_ns,
            # id, drafted, accepted, emitted
            "drafts": [[o.request_id, o.drafted, o.accepted, o.emitted] for o in self.outcomes if o.drafted],
        }


def events_json(events: Sequence[KVEvent]) -> list[list[Any]]:
    """A journal of blocks as JSON."""
    return [[what, request_id, list(blocks)] for what, request_id, blocks in events]


class Trace:
    """The steps of an engine, and the peaks and sums that follow from them."""

    def __init__(self, keep: int = KEPT) -> None:
        self.steps: deque[dict[str, Any]] = deque(maxlen=keep)
        self.host_ns: deque[tuple[int, int]] = deque(maxlen=keep)  # host work between steps: taking in requests
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.steps.clear()
        self.host_ns.clear()
        self.num_steps = 0
        self.output_tokens = 0
        self.peak_used_blocks = 0
        self.peak_used_tokens = 0

    def executed(self, timer: StepTimer, plan: StepPlan, result: StepResult, scheduler: Scheduler) -> None:
        """Look at the pool after a step's execution, before its commit gives blocks back."""
        timer.model_s, timer.parallel = result.model_s, result.parallel
        timer.used_blocks = scheduler.pool.num_used
        timer.kv = kv_usage(scheduler, plan)
        timer.kv_events = scheduler.layout.drain()

    def end(self, timer: StepTimer, plan: StepPlan, scheduler: Scheduler, now_ns: int) -> None:
        """Log a committed step that ended at now_ns."""
        assert timer.kv is not None
        rows = [
            [row.request_id, row.start, len(row.tokens), "prefill" if row.is_prefill else "decode", row.sample]
            for row in plan.rows
        ]
        running = sum(request.state is State.RUNNING for request in scheduler.running)
        used = timer.kv["used_tokens"] + timer.kv["held_tokens"]
        self.num_steps += 1
        self.peak_used_blocks = max(self.peak_used_blocks, timer.used_blocks)
        self.peak_used_tokens = max(self.peak_used_tokens, used)
        self.steps.append(
            {
                "index": plan.index,
                "plan_start_ns": timer.plan_start_ns,
                "execute_start_ns": timer.execute_start_ns,
                "execute_end_ns": timer.execute_end_ns,
                "model_s": timer.model_s,
                **timer.drafting(),
                **({} if timer.parallel is None else {"parallel": timer.parallel}),
                "commit_end_ns": now_ns,
                "prefill_tokens": sum(count for _, _, count, kind, _ in rows if kind == "prefill"),
                "decode_tokens": sum(count for _, _, count, kind, _ in rows if kind == "decode"),
                "num_seqs": len(plan.rows),
                "running": running,
                "waiting": len(scheduler.waiting),
                "slots_held": len(scheduler.running) - running,
                "more_arrivals": timer.more_arrivals,
                **({"ahead": True} if timer.ahead else {}),
                "kv_used_blocks": timer.used_blocks,
                "kv_used_tokens": used,
                "kv_reserved_tokens": timer.used_blocks * scheduler.pool.block_size,
                "rows": rows,
                "admitted": list(plan.admitted),
                "preempted": list(plan.preempted),
                "kv": timer.kv,
                "kv_events": events_json(timer.kv_events),
                "kv_commit_events": events_json(scheduler.layout.drain()),
            }
        )
