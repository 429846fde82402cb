"""Where KV memory went: used, and the kinds in which it was not, step by step and as a mean over a run.

The engine records, for each step, tokens by kind as they were while the step executed (record["steps"][i]["kv"]). What
it can't know then is whether reserved room will ever be filled; after the run the answers' real lengths say it, so
`unused` is split here:
- reserved_ahead: reserved for tokens that did come later;
- reserved_unused: reserved for tokens that never came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.metrics.events import Record
from experiments.metrics.journal import Event, journal

KINDS = ("used", "held", "internal", "reserved_ahead", "reserved_unused", "cached", "free")
"""They add up to the pool."""
EXTERNAL = "external"
WASTE = ("internal", "reserved_unused", EXTERNAL)


def has_kv(record: Record) -> bool:
    """Whether the run was recorded with KV by kind; older runs were not."""
    return bool(record["steps"]) and all("kv" in step for step in record["steps"])


def kinds_by_step(record: Record) -> list[dict[str, int]]:
    """Tokens by kind, for each step: KINDS, and `external`: free tokens outside of the longest run of free blocks.

    Under the paged layout any free block will do, so external is 0 there.
    """
    return [_kinds(step["kv"], ahead) for step, ahead in zip(record["steps"], _awaited(record), strict=True)]


def _kinds(kv: Mapping[str, int], awaited: int) -> dict[str, int]:
    ahead = min(kv["unused_tokens"], awaited)
    return {
        "used": kv["used_tokens"],
        "held": kv["held_tokens"],
        "internal": kv["internal_tokens"],
        "reserved_ahead": ahead,
        "reserved_unused": kv["unused_tokens"] - ahead,
        "cached": kv["cached_tokens"],
        "free": kv["free_tokens"],
        EXTERNAL: kv["free_tokens"] - kv["largest_free_tokens"],
    }


def _awaited(record: Record) -> Iterator[int]:
    """For each step: tokens that requests which hold blocks will still fill, beyond the last block they have begun."""
    size = int(record["config"]["block_size"])
    # The last token of an answer is never computed, so its KV never comes.
    last = {r["id"]: r["prompt_tokens"] + max(0, len(r["output_token_ids"]) - 1) for r in record["requests"]}
    holds: dict[str, int] = {}
    computed: dict[str, int] = {}
    for step, (before, after) in zip(record["steps"], journal(record), strict=True):
        _count(before, holds, computed)
        for request_id, start, count, *_ in step.get("rows", ()):
            computed[request_id] = start + count
        begun = {request_id: -(-computed.get(request_id, 0) // size) * size for request_id in holds}
        yield sum(max(0, last.get(request_id, 0) - tokens) for request_id, tokens in begun.items())
        _count(after, holds, computed)


def _count(events: list[Event], holds: dict[str, int], computed: dict[str, int]) -> None:
    """Follow how many blocks each request holds; one that holds none any more has nothing computed."""
    for what, request_id, blocks in events:
        if what in ("take", "share"):
            holds[request_id] = holds.get(request_id, 0) + len(blocks)
        elif what == "drop":
            holds[request_id] = holds.get(request_id, 0) - len(blocks)
            if holds[request_id] <= 0:
                holds.pop(request_id)
                computed.pop(request_id, None)


def bytes_per_token(record: Record) -> float:
    """Bytes of KV one token takes in the pool: pool bytes / pool tokens. Needs `has_kv`."""
    return record["memory"]["kv_pool_bytes"] / sum(_kinds(record["steps"][0]["kv"], 0)[kind] for kind in KINDS)


def kv_waste(record: Record, rows: Sequence[Mapping[str, int]] | None = None) -> dict[str, Any] | None:
    """Mean over the steps, weighted with their execution time, of each kind: {"tokens","bytes","share"} of the pool.

    Keys: the KINDS, external, and `wasted` = internal + reserved_unused + external; pool_bytes and bytes_per_token.
    rows: `kinds_by_step` where it was made before. None for a run that was recorded without KV by kind.
    """
    if not has_kv(record):
        return None
    weights = [step["execute_end_ns"] - step["execute_start_ns"] for step in record["steps"]]
    if not sum(weights):
        weights = [1] * len(weights)
    rows = kinds_by_step(record) if rows is None else rows
    means = {
        kind: sum(row[kind] * weight for row, weight in zip(rows, weights, strict=True)) / sum(weights)
        for kind in (*KINDS, EXTERNAL)
    }
    means["wasted"] = sum(means[kind] for kind in WASTE)
    each, pool = bytes_per_token(record), sum(means[kind] for kind in KINDS)
    return {
        "pool_bytes": record["memory"]["kv_pool_bytes"],
        "bytes_per_token": each,
        **{kind: {"tokens": tokens, "bytes": tokens * each, "share": tokens / pool} for kind, tokens in means.items()},
    }
