"""When KV memory, not compute, held requests up: preemptions, waits for blocks with a free slot, refusals.

Reads a run record; knows no engine. A target that does not tell its steps has None everywhere: unknown, not absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.metrics.events import num_output_tokens

# What an engine says when a request can never fit its pool begins with one of these fields.
KV_FIELDS = ("kv_memory_mib", "prompt", "max_tokens")


def kv_pressure(record: Mapping[str, Any]) -> dict[str, Any]:
    """{"known","pressed","preemptions","wait_steps","wait_steps_share","refused","peak_share","peak_tokens",
    "pool_tokens","mean_tokens","longest_tokens","predicted"} of one run.

    wait_steps: steps that left a request waiting although a slot and token budget were free, so for KV blocks alone
    (continuous batching only: others wait on purpose). refused: requests that can never fit the pool. pool_tokens:
    what the pool holds; mean_tokens and longest_tokens: a sequence's prompt and answer. predicted (computed): how many
    sequences the pool holds at once, each in whole blocks, when all are as long as the longest, or at their mean
    length; both as ledger.kv_blocks counts them.
    """
    steps, requests = record.get("steps") or [], record["requests"]
    lengths = [request["prompt_tokens"] + num_output_tokens(request) for request in requests if request["emissions"]]
    pool = _pool_tokens(steps)
    config = record.get("config") or {}
    if not steps or pool is None:
        return {**dict.fromkeys(_FIELDS), "known": False, "mean_tokens": fmean(lengths) if lengths else None,
                "longest_tokens": max(lengths, default=None)}  # fmt: skip
    preemptions = record["counters"].get("preemptions")
    waits = sum(_waited_for_kv(step, config) for step in steps)
    refused = sum(_refused_for_kv(request) for request in requests)
    peak = max(_taken_tokens(step) for step in steps)
    return {
        "known": True,
        "pressed": bool(preemptions or waits or refused),
        "preemptions": preemptions,
        "wait_steps": waits,
        "wait_steps_share": waits / len(steps),
        "refused": refused,
        "peak_tokens": peak,
        "peak_share": peak / pool,
        "pool_tokens": pool,
        "mean_tokens": fmean(lengths) if lengths else None,
        "longest_tokens": max(lengths, default=None),
        "predicted": _predicted(pool, int(config.get("block_size") or 1), lengths),
    }


_FIELDS = ("pressed", "preemptions", "wait_steps", "wait_steps_share", "refused", "peak_tokens", "peak_share",
           "pool_tokens", "predicted")  # fmt: skip


def _pool_tokens(steps: list[Mapping[str, Any]]) -> int | None:
    """The kinds of core_engine.kv_usage add up to the whole pool; largest_free is one of the free ones again."""
    kv = steps[0].get("kv") if steps else None
    return None if kv is None else sum(tokens for kind, tokens in kv.items() if kind != "largest_free_tokens")


def _taken_tokens(step: Mapping[str, Any]) -> int:
    kv = step["kv"]
    return int(kv["used_tokens"] + kv["held_tokens"] + kv["internal_tokens"] + kv["unused_tokens"])


def _waited_for_kv(step: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether requests waited through a step that had a slot and token budget for another one."""
    if not step["waiting"] or config.get("batching", "continuous") != "continuous":
        return False
    tokens = step["prefill_tokens"] + step["decode_tokens"]
    slots, budget = config.get("max_num_seqs"), config.get("max_num_batched_tokens")
    return slots is not None and step["num_seqs"] < slots and (budget is None or tokens < budget)


def _refused_for_kv(request: Mapping[str, Any]) -> bool:
    error = request.get("error") or ""
    return request.get("finish_reason") == "error" and "KV" in error and error.startswith(KV_FIELDS)


def _predicted(pool_tokens: int, block_size: int, lengths: list[int]) -> dict[str, Any] | None:
    from ledger.kv_blocks import sequences_held

    if not lengths:
        return None
    blocks = pool_tokens // block_size
    longest, mean = max(lengths), fmean(lengths)
    return {
        "all_longest": sequences_held(blocks, block_size, longest),
        "all_mean": sequences_held(blocks, block_size, round(mean)),
        "formula": f"{blocks:,} blocks // ceil({longest:,} tokens / {block_size}); at the mean, {mean:,.0f} tokens",
        "provenance": "computed",
    }
