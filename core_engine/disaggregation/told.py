"""What a disaggregated engine tells: environment, derived sizes, live snapshot and run record.

The record reads as an engine's: its steps are those of both sides, in the order in which they began, each with `side`,
and its blocks those of both pools. Beside it stand

record["transfers"]: [{"id","blocks","bytes","found_blocks","imported_bytes","tokens","attempts","ready_ns",
"copy_start_ns","copy_end_ns","import_start_ns","import_end_ns"}, ...], one for each prefix that decode took: ready when
its last prefill step was committed, copied out, waiting (for decode's step to end, for a slot, for blocks), copied in.

record["disaggregation"]: {"prefill" and "decode": {"threads","cpus","restarts"}, "losses": [{"side","why","at_ns",
"requests"}], "paused_ns": how long the head of the queue waited because decode was full or the area was, "retried":
{request: times}, "most_prefilling", "most_arriving", "area_bytes", "relay_ns": {"p50","p99","n"} from the end of a
side's step until its outputs were here}. Emissions are stamped on the side, as an engine's are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from core_engine.disaggregation.area import area_bytes
from core_engine.disaggregation.messages import Copied, Resumed
from core_engine.disaggregation.router import Phase, Ticket
from core_engine.environment import resolve_threads
from core_engine.live import WAITING_SHOWN, hit_rate
from core_engine.memory_readings import process_rss_bytes
from core_engine.trace import Trace

if TYPE_CHECKING:
    from core_engine.disaggregation.engine import DisaggregatedEngine

PAIRS = ("num_kv_blocks", "kv_pool_bytes", "kv_tail_bytes", "weights_bytes", "activation_peak_bytes")


def environment(engine: DisaggregatedEngine) -> dict[str, Any]:
    """Decode's description of the machine, with the threads that one process would have and those of each side, which
    are as many in all; of a single one both sides share the core."""
    opened, loaded = engine.sides[1].opened, [side.loaded for side in engine.sides]
    assert opened is not None
    both = {
        side.name: {"threads": found.threads, "cpus": list(found.cpus)}
        for side, found in zip(engine.sides, loaded, strict=True)
        if found is not None
    }
    threads = resolve_threads(engine.config.threads)
    return {**opened.environment, "threads": threads, "disaggregation": both}


def derived(engine: DisaggregatedEngine) -> dict[str, int]:
    """What follows from the settings: of both sides together, and the most that the shared area may come to."""
    opened = [side.opened for side in engine.sides if side.opened is not None]
    sums = {name: sum(one.derived[name] for one in opened) for name in PAIRS}
    area = area_bytes(engine.num_blocks, engine.block_bytes)
    return {**sums, "max_position": engine.max_position, "ranks": 1, "transfer_area_bytes": area}


def log_step(trace: Trace, step: dict[str, Any]) -> None:
    """Enter a step of a side; its state is that of both."""
    trace.num_steps += 1
    trace.peak_used_blocks = max(trace.peak_used_blocks, step["kv_used_blocks"])
    trace.peak_used_tokens = max(trace.peak_used_tokens, step["kv_used_tokens"])
    trace.steps.append(step)


def transfer_of(copied: Copied, ready_ns: int) -> dict[str, Any]:
    """The entry of a prefix whose KV was copied out."""
    return {
        "id": copied.request_id,
        "tokens": copied.num_computed,
        "blocks": copied.blocks,
        "bytes": copied.num_bytes,
        "ready_ns": ready_ns,
        "copy_start_ns": copied.begin_ns,
        "copy_end_ns": copied.end_ns,
    }


def imported(transfer: dict[str, Any], message: Resumed, retries: int) -> None:
    """Complete it with how decode took it."""
    transfer.update(
        found_blocks=message.found_blocks,
        imported_bytes=message.num_bytes,
        import_start_ns=message.begin_ns,
        import_end_ns=message.end_ns,
        attempts=retries + 1,
    )


def memory(engine: DisaggregatedEngine, rss_bytes: int | None) -> dict[str, int | None]:
    """The accounts, bytes, of both sides. rss_bytes: of all three processes, the area in each that touched it."""
    sizes = engine.derived()
    kv, size = engine.books.kv, engine.config.block_size
    used = (kv["used_tokens"] + kv["held_tokens"]) * engine.block_bytes // size
    reserved = engine.books.used * engine.block_bytes
    held = sum(sizes[name] for name in PAIRS[1:])
    return {
        "weights_bytes": sizes["weights_bytes"],
        "kv_pool_bytes": sizes["kv_pool_bytes"],
        "kv_tail_bytes": sizes["kv_tail_bytes"],
        "kv_reserved_bytes": reserved,
        "kv_used_bytes": used,
        "kv_wasted_bytes": reserved - used,
        "kv_cached_bytes": kv["cached_tokens"] * engine.block_bytes // size,
        "activation_peak_bytes": sizes["activation_peak_bytes"],
        "other_bytes": None if rss_bytes is None else max(0, rss_bytes - held),
        "process_rss_bytes": rss_bytes,
        "transfer_area_touched_bytes": os.fstat(engine.model.memory).st_blocks * 512,
    }


def snapshot(engine: DisaggregatedEngine) -> dict[str, Any]:
    """The live state for a page."""
    tickets, trace, books = list(engine.router.tickets.values()), engine.trace, engine.books
    waiting = engine.router.waiting
    owners, fill = [-1] * books.total, [0] * books.total
    by_name = {ticket.request.id: ticket.request for ticket in tickets}
    for block, (name, place) in books.owners().items():
        if (request := by_name.get(name)) is not None:
            owners[block] = request.index
            fill[block] = max(0, min(books.block_size, len(request.tokens) - place * books.block_size))
    steps, used = trace.steps, books.used
    shown = [ticket for ticket in tickets if ticket.phase is not Phase.WAITING] + list(waiting)[:WAITING_SHOWN]
    cached = books.cached()
    return {
        "time_s": engine.clock.now_ns() / 1e9,
        "running": len(tickets) - len(waiting),
        "waiting": len(waiting),
        "max_num_seqs": engine.config.max_num_seqs,
        "output_tokens": trace.output_tokens,
        "step_s": (steps[-1]["commit_end_ns"] - steps[-1]["plan_start_ns"]) / 1e9 if steps else None,
        "blocks": {
            "total": books.total,
            "used": used,
            "free": books.total - used - len(cached),
            "cached": cached,
            "block_size": books.block_size,
            "owners": owners,
            "fill": fill,
        },
        "requests": [_shown(ticket, books.held(ticket.request.id)) for ticket in shown],
        "ledger": memory(engine, None),
        "kv": books.kv,
        "disaggregation": {
            "phases": {phase.value: len(engine.router.of(phase)) for phase in Phase},
            "units_free": engine.router.leases.num_free,
            "units": engine.router.leases.units,
            "transfers": len(engine.transfers),
            "restarts": {side.name: side.restarts for side in engine.sides},
        },
    }


def _shown(ticket: Ticket, blocks: int) -> dict[str, Any]:
    request = ticket.request
    return {
        "id": request.id,
        "letter": request.index,
        "state": "waiting" if ticket.phase is Phase.WAITING else "running",
        "phase": ticket.phase.value,
        "prompt_tokens": request.num_prompt_tokens,
        "output_tokens": request.num_output_tokens,
        "max_tokens": request.params.max_tokens,
        "answer_tokens": request.params.answer_tokens,
        "blocks": blocks,
    }


def record(engine: DisaggregatedEngine) -> dict[str, Any]:
    """Raw events; see the module and Engine.record."""
    trace, size, told = engine.trace, engine.config.block_size, engine.memory_now()
    resident = [process_rss_bytes(), *(one.rss_bytes for one in told.values())]
    is_known = None not in resident and len(told) == len(engine.sides)
    rss = sum(found for found in resident if found is not None) if is_known else None
    accounts = memory(engine, rss)
    requests = engine.sessions.all_requests()
    return {
        "provenance": "measured",
        "config": engine.config.settings(),
        "environment": engine.environment,
        "derived": engine.derived(),
        "steps": sorted(trace.steps, key=lambda step: step["plan_start_ns"]),
        "host_ns": [list(interval) for interval in trace.host_ns],
        "kv_events_after": engine.books.after((side, one.journal) for side, one in told.items()),
        "requests": [request.to_record() for request in requests],
        "transfers": [dict(transfer) for transfer in engine.transfers],
        "disaggregation": _told(engine),
        "memory": {
            **{name: accounts[name] for name in ("weights_bytes", "kv_pool_bytes", "activation_peak_bytes")},
            "kv_reserved_bytes": trace.peak_used_blocks * engine.block_bytes,
            "kv_peak_used_bytes": trace.peak_used_tokens * engine.block_bytes // size,
            "other_bytes": accounts["other_bytes"],
            "process_rss_bytes": rss,
            "transfer_area_touched_bytes": accounts["transfer_area_touched_bytes"],
        },
        "counters": {"preemptions": engine.num_preemptions, "prefix_hit_rate": hit_rate(requests)},
    }


def _told(engine: DisaggregatedEngine) -> dict[str, Any]:
    environment = engine.environment["disaggregation"]
    lags = sorted(engine.relay_ns)
    return {
        **{side.name: {**environment[side.name], "restarts": side.restarts} for side in engine.sides},
        "losses": [dict(loss) for loss in engine.losses],
        "retried": dict(engine.retried),
        "paused_ns": dict(engine.router.paused_ns),
        "most_prefilling": engine.router.most_prefilling,
        "most_arriving": engine.router.most_arriving,
        "area_bytes": area_bytes(engine.num_blocks, engine.block_bytes),
        "relay_ns": {
            "p50": lags[len(lags) // 2] if lags else None,
            "p99": lags[(len(lags) - 1) * 99 // 100] if lags else None,
            "n": len(lags),
        },
    }
