"""Hand-made run records for tests: times in ms, so that expected values can be read off."""

from __future__ import annotations

MS = 1_000_000


def request(
    emissions_ms,
    *,
    id="r00",
    arrival_ms=0,
    send_ms=None,
    reason="length",
    error=None,
    steps=(),
    preemptions_ms=(),
    **extra,
):
    """A request with emissions [(ms, tokens)], finished at its last emission unless told otherwise."""
    finish = emissions_ms[-1][0] if emissions_ms else arrival_ms
    return {
        "id": id,
        "prompt_tokens": 4,
        "max_tokens": 16,
        "arrival_ns": round(arrival_ms * MS),
        "send_ns": round((arrival_ms if send_ms is None else send_ms) * MS),
        "admit_ns": None,
        "steps": [list(step) for step in steps],
        "emissions": [[round(at * MS), n] for at, n in emissions_ms],
        "preemptions": [[round(a * MS), None if b is None else round(b * MS)] for a, b in preemptions_ms],
        "finish_ns": round(finish * MS),
        "release_ns": round(finish * MS),
        "finish_reason": reason,
        "error": error,
        "output_token_ids": [],
    } | extra


def step(index, plan, start, end, commit):
    """A step by its four times in ms."""
    return {
        "index": index,
        "plan_start_ns": plan * MS,
        "execute_start_ns": start * MS,
        "execute_end_ns": end * MS,
        "commit_end_ns": commit * MS,
        "prefill_tokens": 0,
        "decode_tokens": 1,
        "num_seqs": 1,
        "running": 1,
        "waiting": 0,
        "kv_used_blocks": 1,
        "kv_used_tokens": 4,
        "kv_reserved_tokens": 16,
        "slots_held": 0,
    }


def record(*requests, steps=(), provenance="measured"):
    """A run record around requests and steps."""
    return {
        "provenance": provenance,
        "config": {"batching": "continuous", "max_num_seqs": 8},
        "environment": {"device": "cpu", "cpu": "test", "threads": 1, "torch": "0", "python": "3", "platform": "x"},
        "workload": {"name": "mixed", "seed": 0, "num_requests": len(requests), "rate_rps": None, "arrivals": "burst"},
        "steps": list(steps),
        "requests": list(requests),
        "memory": {
            "weights_bytes": 400,
            "kv_pool_bytes": 300,
            "kv_reserved_bytes": 200,
            "kv_peak_used_bytes": 100,
            "activation_peak_bytes": 50,
            "other_bytes": 70,
            "process_rss_bytes": 820,
        },
        "counters": {
            "preemptions": 0,
            "prefix_hit_rate": None,
            "alpha": None,
            "acceptance_rate": None,
            "tokens_per_pass": None,
        },
    }


KV_BLOCK = 4
KV_POOL_BYTES = 48 * 100  # 12 blocks of 4 tokens, 100 B a token


def kv_step(index, start, events=(), rows=(), *, commit=(), length=10, slots_held=0, **tokens):
    """A step with KV by kind, executing for `length` ms from `start` ms with no host time around it.

    `tokens` names what is not free; the free tokens of a pool of 12 blocks follow, in one run unless told otherwise.
    """
    kv = dict.fromkeys(("used", "held", "internal", "unused", "cached"), 0) | tokens
    largest = kv.pop("largest_free", None)
    free = 48 - sum(kv.values())
    return step(index, start, start, start + length, start + length) | {
        "num_seqs": len(rows),
        "running": len(rows),
        "slots_held": slots_held,
        "prefill_tokens": sum(count for _, _, count, kind, _ in rows if kind == "prefill"),
        "rows": [list(row) for row in rows],
        "admitted": [],
        "preempted": [],
        "kv": {
            **{f"{name}_tokens": value for name, value in kv.items()},
            "free_tokens": free,
            "largest_free_tokens": free if largest is None else largest,
        },
        "kv_events": [[what, request_id, list(blocks)] for what, request_id, blocks in events],
        "kv_commit_events": [[what, request_id, list(blocks)] for what, request_id, blocks in commit],
    }


def kv_record(*requests, steps, after=(), **config):
    """A record with KV by kind: a pool of 12 blocks of 4 tokens."""
    made = record(*requests, steps=steps)
    made["config"] = {**made["config"], "block_size": KV_BLOCK, "kv_layout": "contiguous", **config}
    made["memory"]["kv_pool_bytes"] = KV_POOL_BYTES
    made["kv_events_after"] = [list(event) for event in after]
    made["host_ns"] = []
    made["sender_ns"] = {"send": [], "report": [], "cancel": [], "sleep": []}
    return made


def contiguous_record():
    """Two requests that reserve 4 + 16 tokens, 5 blocks each, one after the other's start.

    r00 computes its 4 prompt tokens and then 5 of its 6 answer tokens; r01 its 4 and 1 of its 2. r01 waits for step 1.
    At step 2 r00 has 6 tokens computed: 2 blocks begun, 2 tokens unused in the second (internal), 12 reserved beyond,
    of which 1 is filled later (final KV: 9 tokens) and 11 never are.
    """
    first = request(
        [(10, 1), (20, 1), (30, 1), (40, 1), (50, 1), (60, 1)],
        id="r00",
        steps=[(0, "prefill", 4), *((i, "decode", 1) for i in range(1, 6))],
        admit_ns=0,
        output_token_ids=[5] * 6,
    )
    second = request(
        [(20, 1), (30, 1)],
        id="r01",
        arrival_ms=5,
        steps=[(1, "prefill", 4), (2, "decode", 1)],
        admit_ns=10 * MS,
        output_token_ids=[5] * 2,
    )
    steps = [
        kv_step(0, 0, [("take", "r00", range(5))], [("r00", 0, 4, "prefill", True)], used=4, unused=16),
        kv_step(
            1, 10, [("take", "r01", range(5, 10))], [("r00", 4, 1, "decode", True), ("r01", 0, 4, "prefill", True)],
            used=9, internal=3, unused=28,
        ),
        kv_step(
            2, 20, [], [("r00", 5, 1, "decode", True), ("r01", 4, 1, "decode", True)],
            used=11, internal=5, unused=24, commit=[("drop", "r01", range(9, 4, -1))],
        ),
        kv_step(
            3, 30, [], [("r00", 6, 1, "decode", True)],
            used=7, internal=1, unused=12, largest_free=20,
        ),
        kv_step(4, 40, [], [("r00", 7, 1, "decode", True)], used=8, unused=12),
        kv_step(
            5, 50, [], [("r00", 8, 1, "decode", True)],
            used=9, internal=3, unused=8, commit=[("drop", "r00", range(4, -1, -1))],
        ),
    ]  # fmt: skip
    return kv_record(first, second, steps=steps)
