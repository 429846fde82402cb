"""All metrics of a run record under their stable JSON keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.metrics.answer_cache import answer_cache
from experiments.metrics.disaggregation import disaggregation
from experiments.metrics.energy import energy
from experiments.metrics.events import (
    Record,
    duration_s,
    emissions_once,
    failures,
    num_output_tokens,
    successes,
    summary,
)
from experiments.metrics.host import host_work
from experiments.metrics.kv import kv_waste
from experiments.metrics.latency import e2e_s, itl_s, tpot_s, ttft_s
from experiments.metrics.objectives import Objective, check, goodput_rps, parse_slo, slo_attainment
from experiments.metrics.saved_work import prompt_compression, routing
from experiments.metrics.sender import in_flight, offered_load
from experiments.metrics.slots import concurrency, prefix, slots
from experiments.metrics.throughput import output_tokens_per_s, peak_output_tokens_per_s, requests_per_s
from experiments.metrics.translation import in_other_terms
from experiments.metrics.waterfall import latency_breakdown, unexplained_of, waterfalls
from ledger.cost import cost_per_million_output_tokens, cost_per_request, requests_per_device_hour

MEMORY_KEYS = (
    "weights_bytes",
    "kv_pool_bytes",
    "kv_reserved_bytes",
    "kv_peak_used_bytes",
    "activation_peak_bytes",
    "other_bytes",
    "process_rss_bytes",
    "process_peak_bytes",
    "runtime_bytes",
    "accounts",
    "predicted_bytes",
    "total_bytes",
    "unexplained_bytes",
)
COUNTER_KEYS = ("preemptions", "prefix_hit_rate", "alpha", "acceptance_rate", "tokens_per_pass")
SPECULATION_KEYS = (
    "alpha_by_position",
    "drafted_tokens",
    "accepted_tokens",
    "target_passes",
    "draft_time_share",
    "pace",
)  # of a run with speculation, beside them


def compute_metrics(
    record: Record, *, price_per_device_hour: float = 1.0, slo: str | Sequence[Objective] | None = None
) -> dict[str, Any]:
    """The metrics JSON of one run. Times in s, memory in bytes, cost in the currency of the assumed price.

    Latencies are over successful requests; `quality` is None here, it takes a second run to compare with. Raises
    InputError for a wrong `slo` text.
    """
    objectives = parse_slo(slo) if slo is None or isinstance(slo, str) else tuple(slo)
    record = emissions_once(record)
    good = successes(record)
    parts = [found for _, found in waterfalls(record)]
    metrics: dict[str, Any] = {
        "ttft_s": summary([ttft_s(request) for request in good]),
        "tpot_s": summary([tpot_s(request) for request in good]),
        "itl_s": summary([gap for request in good for gap in itl_s(request)]),
        "e2e_s": summary([e2e_s(request) for request in good]),
        "output_tokens_per_s": output_tokens_per_s(record),
        "peak_output_tokens_per_s": peak_output_tokens_per_s(record),
        "requests_per_s": requests_per_s(record),
        "goodput_rps": goodput_rps(record, objectives),
        "slo_attainment": slo_attainment(record, objectives),
        "completed": len(good),
        "failed": len(record["requests"]) - len(good),
        "failures": failures(record),
        "error_rate": 1 - len(good) / len(record["requests"]) if record["requests"] else None,
        "duration_s": duration_s(record),
        "offered_load": offered_load(record),
        "latency_breakdown": latency_breakdown(record, parts),
        "unexplained_share": unexplained_of(parts),
        "host_work": host_work(record),
        "slots": slots(record),
        "concurrency": concurrency(record),
        "in_flight": in_flight(record),
        "kv_waste": kv_waste(record),
        "prefix": prefix(record),
        "memory": {key: record["memory"].get(key) for key in MEMORY_KEYS},
        "counters": counters(record),
        "energy": energy(record),
        **({"parallel": record["parallel"]} if "parallel" in record else {}),
        **({"disaggregation": disaggregation(record)} if "disaggregation" in record else {}),
        **({"answer_cache": answer_cache(record)} if "answer_cache" in record else {}),
        **prompt_compression(record),
        **routing(record),
        **_money(record, len(good), price_per_device_hour),
        "quality": None,
        "workload": record.get("workload"),
        "target": record.get("target"),
        "tokens_counted": record.get("tokens_counted"),
        "client_lag_s": record.get("client_lag_s"),
        "in_other_terms": in_other_terms(record),
        "config": record["config"],
        "environment": record["environment"],
        "provenance": record["provenance"],
    }
    metrics["objectives"] = check(metrics, objectives)
    return metrics


def counters(record: Record) -> dict[str, Any]:
    """The record's counters; those of drafts alone are there only when something proposed them."""
    found = record["counters"]
    return {key: found.get(key) for key in COUNTER_KEYS} | {key: found[key] for key in SPECULATION_KEYS if key in found}


def _money(record: Record, completed: int, price: float) -> dict[str, Any]:
    """Cost of the run's device time (its duration on one device) at an assumed price, and what it bought."""
    duration = duration_s(record)
    tokens = sum(num_output_tokens(request) for request in successes(record))
    return {
        "cost_per_million_output_tokens": duration and cost_per_million_output_tokens(duration, tokens, price),
        "cost_per_request": duration and cost_per_request(duration, completed, price),
        "requests_per_device_hour": duration and requests_per_device_hour(duration, completed),
        "price_per_device_hour": price,
        "price_provenance": "assumed",
    }
