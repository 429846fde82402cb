"""Numeric questions about latency under load: Little's law, waiting, time per token, goodput."""

from __future__ import annotations

from random import Random
from typing import Any

from experiments.interview.numeric.kind import Kind, Values
from experiments.metrics.latency import tpot_s
from experiments.metrics.objectives import goodput_rps, parse_slo
from ledger.queueing import busy_share, in_flight, mean_wait_s

NS = 1_000_000_000
LIMITS = "ttft_p95=1,tpot_p95=0.05"


def _draw_flight(rng: Random) -> Values:
    return {
        "rate": rng.choice((2, 4, 5, 8, 10, 12, 20)), "ttft": rng.choice((0.5, 0.8, 1.2, 1.5, 2.0)),
        "tpot_ms": rng.choice((15, 20, 25, 30, 40)), "output": rng.choice((101, 151, 201, 301, 401)),
    }  # fmt: skip


def _stay_s(values: Values) -> float:
    return values["ttft"] + (values["output"] - 1) * values["tpot_ms"] / 1000


def _draw_wait(rng: Random) -> Values | None:
    values = {"service_ms": rng.choice((40, 50, 80, 100, 125, 200)), "rate": rng.choice(range(2, 25))}
    return values if 0.3 <= busy_share(values["rate"], values["service_ms"] / 1000) <= 0.95 else None


def _wait_ms(values: Values, *, fixed: bool = False) -> float:
    return 1000 * mean_wait_s(values["rate"], values["service_ms"] / 1000, fixed_service=fixed)


def _busy(values: Values) -> float:
    return busy_share(values["rate"], values["service_ms"] / 1000)


def _draw_tpot(rng: Random) -> Values:
    return {
        "ttft_ms": rng.choice((300, 500, 800, 1000, 1500)), "output": rng.choice((6, 8, 11, 13, 16, 21)),
        "gap_ms": rng.choice((10, 15, 20, 25, 40, 60)),
    }  # fmt: skip


def _request(ttft_ms: float, gap_ms: float, tokens: int, *, error: str | None = None) -> dict[str, Any]:
    """One request as a run records it, in ns."""
    times = [round((ttft_ms + place * gap_ms) * 1e6) for place in range(tokens)]
    emissions = [] if error else [[at, 1] for at in times]
    return {"arrival_ns": 0, "emissions": emissions, "error": error, "finish_reason": None if error else "length"}


def _e2e_ms(values: Values) -> float:
    return float(values["ttft_ms"] + (values["output"] - 1) * values["gap_ms"])


def _tpot_ms(values: Values) -> float:
    return 1000 * (tpot_s(_request(values["ttft_ms"], values["gap_ms"], values["output"])) or 0.0)


def _draw_goodput(rng: Random) -> Values | None:
    values = {
        "sent": rng.choice(range(60, 101, 5)), "failed": rng.choice((2, 3, 4, 5)),
        "late_first": rng.choice(range(8, 21)),
        "slow": rng.choice(range(6, 19)), "both": rng.choice((3, 4, 5)), "duration": rng.choice((10, 20, 25, 40)),
    }  # fmt: skip
    return values if values["both"] < min(values["late_first"], values["slow"]) else None


def _goodput(values: Values) -> float:
    """By the metric of a run: every request as it would be recorded, against both limits."""
    both = values["both"]
    rest = values["sent"] - values["failed"] - values["late_first"] - values["slow"] + both
    requests = [
        *[_request(500, 20, 3)] * rest,
        *[_request(1500, 20, 3)] * (values["late_first"] - both),
        *[_request(500, 80, 3)] * (values["slow"] - both),
        *[_request(1500, 80, 3)] * both,
        *[_request(0, 0, 0, error="HTTP 503")] * values["failed"],
    ]
    # One request's last token ends the window that the rate is over.
    last = {**requests[0], "arrival_ns": values["duration"] * NS - requests[0]["emissions"][-1][0]}
    last["emissions"] = [[at + last["arrival_ns"], count] for at, count in requests[0]["emissions"]]
    return goodput_rps({"requests": [last, *requests[1:]]}, parse_slo(LIMITS)) or 0.0


def _good(values: Values) -> int:
    return int(values["sent"] - values["failed"] - values["late_first"] - values["slow"] + values["both"])


KINDS = (
    Kind(
        "in_flight", "latency", "requests", _draw_flight, lambda v: in_flight(v["rate"], _stay_s(v)),
        {
            "ttft_forgotten": lambda v, key: key - v["rate"] * v["ttft"],
            "ttft_alone": lambda v, _key: v["rate"] * v["ttft"],
            "divided": lambda v, _key: v["rate"] / _stay_s(v),
            "rate_forgotten": lambda v, _key: _stay_s(v),
        },
        lambda v: {"stay": _stay_s(v), "gaps": v["output"] - 1},
    ),
    Kind(
        "queue_wait", "latency", "ms", _draw_wait, _wait_ms,
        {
            "response_for_wait": lambda v, key: key + v["service_ms"],
            "linear_wait": lambda v, _key: _busy(v) * v["service_ms"],
            "no_queue": lambda v, _key: v["service_ms"],
            "fixed_service": lambda v, _key: _wait_ms(v, fixed=True),
        },
        lambda v: {"busy": _busy(v)},
    ),
    Kind(
        "tpot", "latency", "ms", _draw_tpot, _tpot_ms,
        {
            "ttft_included": lambda v, _key: _e2e_ms(v) / v["output"],
            "tokens_for_gaps": lambda v, _key: (_e2e_ms(v) - v["ttft_ms"]) / v["output"],
            "ttft_over_gaps": lambda v, _key: _e2e_ms(v) / (v["output"] - 1),
        },
        lambda v: {"e2e_ms": _e2e_ms(v), "decode_ms": _e2e_ms(v) - v["ttft_ms"], "gaps": v["output"] - 1},
        tolerance=0.01,
    ),
    Kind(
        "goodput", "latency", "requests/s", _draw_goodput, _goodput,
        {
            "failed_counted": lambda v, _key: (_good(v) + v["failed"]) / v["duration"],
            "missed_twice": lambda v, _key: (_good(v) - v["both"]) / v["duration"],
            "throughput": lambda v, _key: (v["sent"] - v["failed"]) / v["duration"],
            "one_objective": lambda v, _key: (v["sent"] - v["failed"] - v["late_first"]) / v["duration"],
        },
        lambda v: {"good": _good(v), "missed": v["late_first"] + v["slow"] - v["both"]}, tolerance=0.01,
    ),
)  # fmt: skip
