"""Where the tokens of the KV pool are during a step: used, and wasted in which way."""

from __future__ import annotations

from core_engine.plan import StepPlan
from core_engine.request import Request, State
from core_engine.scheduler import Scheduler


def kv_usage(scheduler: Scheduler, plan: StepPlan | None = None) -> dict[str, int]:
    """Tokens by kind; used + held + internal + unused + cached + free = the whole pool.

    used: KV of running requests, what `plan` computes included; a block that several share counts once. held: KV of
    finished requests whose slot is kept (static batching). internal: the tail of the last block that a request has
    begun. unused: blocks reserved beyond it. cached: blocks of the prefix cache that nobody holds. largest_free: the
    most that one request could still be given, in one piece where the layout needs that.
    """
    pool, size = scheduler.pool, scheduler.pool.block_size
    ends = {row.request_id: row.start + len(row.tokens) for row in plan.rows} if plan is not None else {}
    used = held = internal = unused = 0
    seen: set[int] = set()
    for request in sorted(scheduler.running, key=_is_held) if pool.num_duplicates else scheduler.running:
        end = ends.get(request.id, request.num_computed)
        begun = -(-end // size)
        again = 0
        if pool.num_duplicates:  # shared blocks are full, and the first holder has counted them
            again = sum(block in seen for block in request.blocks[:begun])
            seen.update(request.blocks[:begun])
        if request.state is State.HELD:
            held += end - again * size
        else:
            used += end - again * size
        internal += begun * size - end
        unused += (len(request.blocks) - begun) * size
    return {
        "used_tokens": used,
        "held_tokens": held,
        "internal_tokens": internal,
        "unused_tokens": unused,
        "cached_tokens": pool.num_cached * size,
        "free_tokens": pool.num_free * size,
        "largest_free_tokens": scheduler.layout.largest_free() * size,
    }


def _is_held(request: Request) -> bool:
    return request.state is State.HELD
