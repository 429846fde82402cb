"""What a running engine tells: the live snapshot for a page and the run record for the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core_engine.accounts import memory_accounts, resident_bytes
from core_engine.kv_usage import kv_usage
from core_engine.parallel.executor import ParallelExecutor
from core_engine.parallel.told import parallel_record
from core_engine.request import Request, State
from core_engine.trace import events_json

if TYPE_CHECKING:
    from core_engine.engine import Engine

WAITING_SHOWN = 50


def hit_rate(requests: Sequence[Request]) -> float | None:
    """Tokens found in the prefix cache over tokens looked up; None when nothing was."""
    asked = sum(request.log.prefix_asked_tokens for request in requests)
    return sum(request.log.prefix_hit_tokens for request in requests) / asked if asked else None


def provenance(engine: Engine) -> str:
    """ "simulated" where the executor says so, else "measured"."""
    return str(getattr(engine.executor, "provenance", "measured"))


def kv_bytes_per_token(engine: Engine) -> int:
    """Bytes of KV one token takes in this engine's cache, rounded down where scales of a block are shared."""
    return engine.executor.kv_pool_bytes() // (engine.pool.num_blocks * engine.pool.block_size)


def memory_ledger(engine: Engine) -> dict[str, int | None]:
    """The live accounts, bytes. Reserved is blocks owned by requests, used is tokens with KV, wasted the difference.

    other is resident memory beyond weights, KV pool and activation peak: interpreter, libraries, tokenizer.
    """
    per_token = kv_bytes_per_token(engine)
    usage = kv_usage(engine.scheduler)
    used = (usage["used_tokens"] + usage["held_tokens"]) * per_token
    reserved = engine.pool.num_used * (engine.executor.kv_pool_bytes() // engine.pool.num_blocks)
    weights = engine.loaded.weights.num_bytes()
    pool, activations = engine.executor.kv_pool_bytes(), engine.executor.activation_peak_bytes()
    tails = engine.executor.kv_tail_bytes()
    on_this_cpu = engine.loaded.weights.device.type == "cpu" and provenance(engine) == "measured"
    rss = resident_bytes(engine) if on_this_cpu else None
    return {
        "weights_bytes": weights,
        "kv_pool_bytes": pool,
        "kv_tail_bytes": tails,
        "kv_reserved_bytes": reserved,
        "kv_used_bytes": used,
        "kv_wasted_bytes": reserved - used,
        "kv_cached_bytes": usage["cached_tokens"] * per_token,
        "activation_peak_bytes": activations,
        "other_bytes": None if rss is None else max(0, rss - weights - pool - tails - activations),
        "process_rss_bytes": rss,
    }


def accounts_of(engine: Engine) -> dict[str, Any]:
    """Predicted against measured: core_engine.accounts, with the runtime's reading by its own name. A simulated engine
    has nothing to be measured."""
    if provenance(engine) == "simulated":
        return {}
    return {**memory_accounts(engine, engine.predicted), "runtime_bytes": engine.loaded.runtime_bytes}


def snapshot(engine: Engine) -> dict[str, Any]:
    """The live state; see Engine.snapshot."""
    scheduler, pool = engine.scheduler, engine.pool
    owners, fill = [-1] * pool.num_blocks, [0] * pool.num_blocks
    for request in scheduler.running:
        for place, block in enumerate(request.blocks):
            owners[block] = request.index
            fill[block] = max(0, min(pool.block_size, request.num_computed - place * pool.block_size))
    steps = engine.trace.steps
    shown = [*scheduler.running, *list(scheduler.waiting)[:WAITING_SHOWN]]
    return {
        "time_s": engine.clock.now_ns() / 1e9,
        "running": sum(request.state is State.RUNNING for request in scheduler.running),
        "waiting": len(scheduler.waiting),
        "max_num_seqs": engine.config.max_num_seqs,
        "output_tokens": engine.trace.output_tokens,
        "step_s": (steps[-1]["commit_end_ns"] - steps[-1]["plan_start_ns"]) / 1e9 if steps else None,
        "blocks": {
            "total": pool.num_blocks,
            "used": pool.num_used,
            "free": pool.num_free,
            "cached": pool.cached,
            "block_size": pool.block_size,
            "owners": owners,
            "fill": fill,
        },
        "requests": [
            {
                "id": request.id,
                "letter": request.index,
                "state": request.state.value,
                "prompt_tokens": request.num_prompt_tokens,
                "output_tokens": request.num_output_tokens,
                "max_tokens": request.params.max_tokens,
                "answer_tokens": request.params.answer_tokens,
                "blocks": len(request.blocks),
            }
            for request in shown
        ],
        "ledger": {**memory_ledger(engine), **accounts_of(engine)},
        "kv": kv_usage(scheduler),
        **parallel_of(engine),
    }


def parallel_of(engine: Engine) -> dict[str, Any]:
    """{"parallel": ...} of an engine whose model lies in ranks; nothing of another."""
    executor = engine.executor
    return {"parallel": parallel_record(executor)} if isinstance(executor, ParallelExecutor) else {}


def record(engine: Engine) -> dict[str, Any]:
    """Raw events; see Engine.record. Scoring requests are left out: nobody waited for them."""
    per_token = kv_bytes_per_token(engine)
    ledger = memory_ledger(engine)
    trace = engine.trace
    requests = engine.sessions.all_requests()
    return {
        "provenance": provenance(engine),
        "config": engine.config.settings(),
        "environment": engine.environment,
        "derived": engine.derived(),
        "steps": list(trace.steps),
        "host_ns": [list(interval) for interval in trace.host_ns],
        "kv_events_after": events_json(engine.scheduler.layout.journal),
        "requests": [request.to_record() for request in requests],
        **parallel_of(engine),
        "memory": {
            "weights_bytes": ledger["weights_bytes"],
            "kv_pool_bytes": ledger["kv_pool_bytes"],
            "kv_reserved_bytes": trace.peak_used_blocks * engine.pool.block_size * per_token,
            "kv_peak_used_bytes": trace.peak_used_tokens * per_token,
            "activation_peak_bytes": ledger["activation_peak_bytes"],
            "other_bytes": ledger["other_bytes"],
            "process_rss_bytes": ledger["process_rss_bytes"],
            **accounts_of(engine),
        },
        "counters": {
            "preemptions": engine.scheduler.num_preemptions,
            "prefix_hit_rate": hit_rate(requests),
            **engine.speculation.counters(),
        },
        **({} if engine.caches is None else {"answer_cache": engine.caches.counters()}),
    }
