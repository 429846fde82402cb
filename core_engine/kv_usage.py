"""Where the tokens of the KV pool are during a step: used, and wasted in which way."""

from __future__ import annotations

from core_engine.plan import StepPlan
from core_engine.request import State
from core_engine.scheduler import Scheduler


def kv_usage(scheduler: Scheduler, plan: StepPlan | None = None) -> dict[str, int]:
    """Tokens by kind; used + held + internal + unused + cached + free = the whole pool.

    used: KV of running requests, what `plan` computes included; a block that several share counts once. held: KV of
    finished requests whose slot is kept (static batching). internal: the tail of the last block that a request has
    begun. unused: blocks reserved beyond it. cached: blocks of the prefix cache that nobody holds. largest_free: the
    most that one request could still be given, in one piece where the layout needs that.
    """
    pool, size = scheduler.pool, scheduler.pool.block_size
    ends = {row.request_id: row.end for row in plan.rows} if plan is not None else {}
    kinds = {"used": 0, "held": 0, "internal": 0, "unused": 0}
    seen: set[int] = set()
    for request in sorted(scheduler.running, key=lambda request: request.state is State.HELD):
        end = ends.get(request.id, request.num_computed)
        begun = pool.blocks_for(end)
        again = 0
        if pool.num_duplicates:  # shared blocks are full, and the first holder has counted them
            again = sum(block in seen for block in request.blocks[:begun])
            seen.update(request.blocks[:begun])
        kinds["held" if request.state is State.HELD else "used"] += end - again * size
        kinds["internal"] += begun * size - end
        kinds["unused"] += (len(request.blocks) - begun) * size
    return {
        **{f"{kind}_tokens": tokens for kind, tokens in kinds.items()},
        "cached_tokens": pool.num_cached * size,
        "free_tokens": pool.num_free * size,
        "largest_free_tokens": scheduler.layout.largest_free() * size,
    }
