"""What the answer caches did in a run: hits by tier, wrong ones where that is known, and the work that was saved.

Source: each request's `cache` entry (tier, the request whose answer it is, similarity), its `answer_key` where the
workload knows which questions have the same answer, and the record's `answer_cache` counters.
"""

from __future__ import annotations

from typing import Any

from experiments.metrics.events import Record, Request, num_output_tokens, successes, summary
from experiments.metrics.latency import ttft_s

TIERS = ("exact", "semantic")


def answer_cache(record: Record) -> dict[str, Any]:
    """Metrics of a run whose engine had a cache.

    hit_rate: hits of all successful requests; judged: hits whose right answer is known, wrong: those of them whose
    answer was computed for another question, wrong_hit_rate the one over the other. saved_*_tokens: prompt and output
    tokens of hits, which nobody computed; saved_share: of all tokens of successful requests. lookup_s: what a look-up
    took, embedding included. refused: candidates that were similar enough and that the gate kept apart, by reason.
    """
    good = successes(record)
    hits = [request for request in good if request.get("cache") is not None]
    missed = [request for request in good if request.get("cache") is None]
    by_id = {request["id"]: request for request in record["requests"]}
    judged = [right for request in hits if (right := _is_right(request, by_id)) is not None]
    saved_prefill = sum(request["prompt_tokens"] for request in hits)
    saved_decode = sum(map(num_output_tokens, hits))
    total = sum(request["prompt_tokens"] + num_output_tokens(request) for request in good)
    counted = record["answer_cache"]
    return {
        "hits": {tier: sum(request["cache"]["tier"] == tier for request in hits) for tier in TIERS},
        "hit_rate": len(hits) / len(good) if good else None,
        "judged": len(judged),
        "wrong": judged.count(False),
        "wrong_hit_rate": judged.count(False) / len(judged) if judged else None,
        "saved_prefill_tokens": saved_prefill,
        "saved_decode_tokens": saved_decode,
        "saved_share": (saved_prefill + saved_decode) / total if total else None,
        "ttft_hit_s": summary([ttft_s(request) for request in hits]),
        "ttft_miss_s": summary([ttft_s(request) for request in missed]),
        "lookup_s": summary([ns / 1e9 for ns in counted["lookup_ns"]]),
        **{name: counted[name] for name in ("entries", "evicted", "expired", "invalidated", "refused")},
    }


def _is_right(request: Request, by_id: dict[str, Request]) -> bool | None:
    """Whether a hit's answer was computed for a question with the same answer; None where that is not known."""
    source = by_id.get(request["cache"]["source"])
    keys = (request.get("answer_key"), None if source is None else source.get("answer_key"))
    return None if None in keys else keys[0] == keys[1]
