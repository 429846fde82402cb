"""Metrics of a simulated fleet under the keys that a measured run has them under; everything is labelled simulated.

What a simulation without records of steps can't tell is None. ITL is pooled over all requests; from about 200,000
different gaps on its percentiles are within 0.25 % (core_engine/simulation/gaps.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_engine.simulation.gaps import Gaps
from core_engine.simulation.job import Ended
from experiments.metrics.objectives import Objective, check
from ledger.cost import cost_per_million_output_tokens, cost_per_request, requests_per_device_hour

NS = 1e9


def fleet_metrics(
    ended: Sequence[Ended], gaps: Gaps, *, devices: int, price_per_device_hour: float, slo: Sequence[Objective] = ()
) -> dict[str, Any]:
    """Times in s. Latencies are over the requests that were served; those refused are failed.

    Goodput and attainment take TTFT, TPOT and E2E of each request; an objective of ITL is judged on the run alone.
    """
    served = [item for item in ended if item.first_ns is not None]
    table = _Times(served)
    failed = len(ended) - len(served)
    tokens = int(table.tokens.sum())
    duration_s = table.duration_s
    good = table.within(slo)
    metrics: dict[str, Any] = {
        "ttft_s": _summary(table.ttft),
        "tpot_s": _summary(table.tpot),
        "itl_s": _of_gaps(gaps),
        "e2e_s": _summary(table.e2e),
        "output_tokens_per_s": None if not duration_s else tokens / duration_s,
        "requests_per_s": None if not duration_s else len(served) / duration_s,
        "goodput_rps": None if not slo or not duration_s else int(good.sum()) / duration_s,
        "slo_attainment": None if not slo or not ended else int(good.sum()) / len(ended),
        "completed": len(served),
        "failed": failed,
        "error_rate": failed / len(ended) if ended else None,
        "duration_s": duration_s,
        "latency_breakdown": {
            "queue_s": _mean(table.queue),
            "prefill_s": _mean(table.first - table.arrival - (table.queue - table.late_queue)),
            "decode_s": _mean(table.last - table.first - table.late_queue),
            "overhead_s": None,
            "stalled_s": None,
            "unexplained_s": None,
        },
        "counters": {
            "preemptions": sum(item.preemptions for item in served),
            "prefix_hit_rate": _ratio(
                sum(item.prefix_hit_tokens for item in served), sum(item.job.prompt_tokens for item in served)
            ),
        },
        "quality": None,
        "devices": devices,
        "price_per_device_hour": price_per_device_hour,
        "price_provenance": "assumed",
        "provenance": "simulated",
    }
    device_s = duration_s and duration_s * devices
    price = price_per_device_hour
    metrics["cost_per_million_output_tokens"] = device_s and cost_per_million_output_tokens(device_s, tokens, price)
    metrics["cost_per_request"] = device_s and cost_per_request(device_s, len(served), price)
    metrics["requests_per_device_hour"] = device_s and requests_per_device_hour(device_s, len(served))
    metrics["objectives"] = check(metrics, slo)
    return metrics


class _Times:
    """The served requests' times as arrays, s."""

    def __init__(self, served: Sequence[Ended]) -> None:
        self.arrival = np.array([item.job.arrival_ns for item in served], dtype=np.float64) / NS
        self.first = np.array([item.first_ns for item in served], dtype=np.float64) / NS
        self.last = np.array([item.last_ns for item in served], dtype=np.float64) / NS
        self.queue = np.array([item.queue_ns for item in served], dtype=np.float64) / NS
        self.late_queue = np.array([item.late_queue_ns for item in served], dtype=np.float64) / NS
        self.tokens = np.array([item.output_tokens for item in served], dtype=np.int64)
        after = self.tokens - np.array([item.first_tokens for item in served], dtype=np.int64)
        self.ttft, self.e2e = self.first - self.arrival, self.last - self.arrival
        several = after > 0
        self.per_token = np.full(len(served), np.nan)
        self.per_token[several] = (self.last - self.first)[several] / after[several]
        self.tpot = self.per_token[several]
        self.duration_s = float(self.last.max() - self.arrival.min()) if len(served) else None

    def within(self, slo: Sequence[Objective]) -> np.ndarray:
        """Which requests meet every objective of a request's own; one without a time per token can't miss that."""
        good = np.ones(len(self.ttft), dtype=bool)
        own = {"ttft": self.ttft, "tpot": self.per_token, "e2e": self.e2e}
        for objective in slo:
            if objective.latency in own:
                good &= ~(own[objective.latency] > objective.limit)
        return good


def _summary(values: np.ndarray) -> dict[str, float | int | None]:
    if not len(values):
        return {"mean": None, "p50": None, "p95": None, "p99": None, "n": 0}
    p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
    return {"mean": float(values.mean()), "p50": p50, "p95": p95, "p99": p99, "n": len(values)}


def _of_gaps(gaps: Gaps) -> dict[str, float | int | None]:
    if not gaps.count:
        return {"mean": None, "p50": None, "p95": None, "p99": None, "n": 0}
    found = {f"p{share}": (gaps.percentile(share) or 0.0) / NS for share in (50, 95, 99)}
    return {"mean": gaps.total_ns / gaps.count / NS, **found, "n": gaps.count}


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
