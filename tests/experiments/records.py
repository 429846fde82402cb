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
