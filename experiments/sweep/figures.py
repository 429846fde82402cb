"""What one point of a sweep showed, made from the records of its repeats. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from experiments.metrics import compute_metrics, parse_slo
from experiments.metrics.events import NS_PER_S, emissions, num_output_tokens, successes
from experiments.metrics.latency import e2e_s
from experiments.metrics.objectives import check
from experiments.summary import over_repeats
from experiments.sweep.growth import growth
from experiments.sweep.points import FOR_P95, FOR_P99, Point
from experiments.sweep.pressure import kv_pressure
from experiments.sweep.spec import SweepSpec

Sample = tuple[float, int]
"""(e2e in s, output tokens) of one successful request."""


def samples_of(record: Mapping[str, Any]) -> list[Sample]:
    """End-to-end latency and output tokens of every successful request."""
    found = ((e2e_s(request), num_output_tokens(request)) for request in successes(record))
    return [(latency, tokens) for latency, tokens in found if latency is not None and tokens]


def latency_per_token_s(samples: Sequence[Sample]) -> float | None:
    """Normalised latency: the requests' end-to-end times together / their output tokens together. Unit s/token.

    Orca and vLLM average the ratio of each request; the ratio of sums is not ruled by the shortest answers.
    """
    tokens = sum(count for _, count in samples)
    return sum(latency for latency, _ in samples) / tokens if tokens else None


def steady(record: Mapping[str, Any], clients: int) -> tuple[float, float] | None:
    """(output tokens/s, requests/s) from the first arrival of a closed loop to the last: while all clients are at work.

    What comes after is a batch that empties. None when each client sent one request only.
    """
    requests = record["requests"]
    if len(requests) <= clients:
        return None
    start = min(request["arrival_ns"] for request in requests)
    end = max(request["arrival_ns"] for request in requests)
    if end <= start:
        return None
    every = [emitted for request in successes(record) if (emitted := emissions(request))]
    tokens = sum(n for emitted in every for at, n in emitted if start < at <= end)
    ended = sum(start < emitted[-1][0] <= end for emitted in every)
    return tokens * NS_PER_S / (end - start), ended * NS_PER_S / (end - start)


RATES = ("output_tokens_per_s", "requests_per_s", "goodput_rps", "cost_per_million_output_tokens", "cost_per_request")


def rates(metrics: Mapping[str, Any], held: tuple[float, float] | None) -> dict[str, float | None]:
    """RATES of one run over the same span of time: the whole run, or where there is one the span of `steady`, whose
    requests keep the objectives as often as all do and whose seconds cost as much.
    """
    found: dict[str, float | None] = {name: metrics[name] for name in RATES}
    tokens, requests = metrics["output_tokens_per_s"], metrics["requests_per_s"]
    if held is None or not all(held) or not tokens or not requests:
        return found
    by_tokens, by_requests = held[0] / tokens, held[1] / requests
    times = (by_tokens, by_requests, by_requests, 1 / by_tokens, 1 / by_requests)
    return {name: None if value is None else value * by for (name, value), by in zip(found.items(), times, strict=True)}


def point_json(spec: SweepSpec, point: Point, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A point of the result (see docs/architecture.md, Sweeps): median over repeats, with what each repeat showed."""
    price = spec.price_per_device_hour
    every = [compute_metrics(record, price_per_device_hour=price, slo=spec.slo) for record in records]
    merged = over_repeats(every)
    merged["objectives"] = check(merged, parse_slo(spec.slo))
    latencies = [latency_per_token_s(samples_of(record)) for record in records]
    grown = [growth(record) for record in records] if point.load.rate_rps is not None else []
    clients = point.load.concurrency
    held = [None if clients is None else steady(record, clients) for record in records]
    pressures = [kv_pressure(record) for record in records]
    rated = [rates(*one) for one in zip(every, held, strict=True)]
    return {
        "label": point.label(spec.over),
        "value": point.value,
        "origin": point.origin,
        "load": {"concurrency": clients, "rate_rps": point.load.rate_rps, "text": point.load.text()},
        "num_requests": point.num_requests,
        **{name: _middle([one[name] for one in rated]) for name in RATES},
        "offered_rps": _middle([one["offered_rps"] for one in grown]),
        "served_rps": _middle([one["served_rps"] for one in grown]),
        "growing": _most(one["growing"] for one in grown),
        "behind": _most(one["behind"] for one in grown),
        "growth": grown,
        "latency_per_token_s": _middle(latencies),
        "ttft_p95_s": merged["ttft_s"]["p95"],
        "itl_p95_s": merged["itl_s"]["p95"],
        "slo_attainment": merged["slo_attainment"],
        "meets": _meets(merged["objectives"]),
        "kv": _pressures(pressures),
        "repeats": [_repeat(*one) for one in zip(every, rated, latencies, strict=True)],
        "metrics": {key: value for key, value in merged.items() if key not in ("workload", "config", "environment")},
        "warnings": _warnings(every, records, point),
        "environment": records[0]["environment"],
        "provenance": merged["provenance"],
    }


def _repeat(metrics: Mapping[str, Any], rated: Mapping[str, float | None], latency: float | None) -> dict[str, Any]:
    return {
        "output_tokens_per_s": rated["output_tokens_per_s"],
        "requests_per_s": rated["requests_per_s"],
        "ttft_p95_s": metrics["ttft_s"]["p95"],
        "itl_p95_s": metrics["itl_s"]["p95"],
        "itl_mean_s": metrics["itl_s"]["mean"],
        "goodput_rps": rated["goodput_rps"],
        "latency_per_token_s": latency,
    }


def _meets(objectives: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether every objective is met; None without objectives, or when a run can't tell one and none is missed."""
    answers = [one["met"] for one in objectives]
    if not answers or False in answers:
        return False if answers else None
    return None if None in answers else True


def _pressures(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first repeat's lengths and prediction; of what happened, the median and whether any repeat showed it."""
    first = dict(repeats[0])
    counted = ("preemptions", "wait_steps", "wait_steps_share", "refused", "peak_share", "peak_tokens")
    for name in counted:
        first[name] = _middle([one[name] for one in repeats])
    first["pressed_repeats"] = sum(bool(one["pressed"]) for one in repeats)
    first["pressed"] = None if not first["known"] else first["pressed_repeats"] > 0
    return first


def _warnings(every: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]], point: Point) -> list[str]:
    found = sorted({one["offered_load"]["warning"] for one in every if one["offered_load"]["warning"]})
    counts = [one["ttft_s"]["n"] for one in every]
    if min(counts) < FOR_P95:
        found.append(f"{min(counts)} answers a run: p95 takes {FOR_P95}, p99 {FOR_P99}")
    failed = sum(one["failed"] for one in every)
    if failed:
        found.append(f"{failed} of {sum(len(record['requests']) for record in records)} requests failed")
    return found


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _most(answers: Any) -> bool | None:
    """What most repeats say, of those that can tell."""
    known = [answer for answer in answers if answer is not None]
    return sum(known) * 2 > len(known) if known else None
