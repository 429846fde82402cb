"""Service level objectives: their text form, and goodput under them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.metrics.events import Record, Request, duration_s, succeeded, summary
from experiments.metrics.latency import e2e_s, itl_s, tpot_s, ttft_s
from ledger.errors import InputError

LATENCIES = ("ttft", "tpot", "itl", "e2e")
STATISTICS = ("mean", "p50", "p95", "p99")
RUN_LEVEL = ("error_rate", "cost_per_request", "quality_drop")
ACCEPTED = (
    f"NAME=LIMIT, separated by commas; NAME is one of {', '.join(LATENCIES)} with _{', _'.join(STATISTICS)} (in s), or "
    f"{', '.join(RUN_LEVEL)}; LIMIT is a number of 0 or more"
)


@dataclass(frozen=True)
class Objective:
    """An upper limit: seconds for a latency such as `ttft_p95`, a share for a rate, money for a cost."""

    name: str
    limit: float

    @property
    def latency(self) -> str | None:
        """ "ttft" of "ttft_p95"; None for an objective of the whole run."""
        return None if self.name in RUN_LEVEL else self.name.rsplit("_", 1)[0]


def parse_slo(text: str | None) -> tuple[Objective, ...]:
    """Objectives from "ttft_p95=0.5,itl_p99=0.05,error_rate=0.01"; none from None or an empty text.

    Raises InputError (field "slo") for an unknown or repeated name and for a limit that is no number of 0 or more.
    """
    objectives: dict[str, Objective] = {}
    for part in filter(None, (piece.strip() for piece in (text or "").split(","))):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        latency, _, statistic = name.rpartition("_")
        known = name in RUN_LEVEL or (latency in LATENCIES and statistic in STATISTICS)
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not (separator and known) or name in objectives or not 0 <= limit < math.inf:
            raise InputError("slo", part, ACCEPTED)
        objectives[name] = Objective(name, limit)
    return tuple(objectives.values())


def meets(request: Request, objectives: Sequence[Objective]) -> bool:
    """True for a successful request within every latency objective, each taken over this request's own values.

    A request of one token has no gap and no time per token: it cannot miss those. One without a token misses.
    """
    if not succeeded(request) or ttft_s(request) is None:
        return False
    gaps = summary(itl_s(request))
    for objective in objectives:
        if objective.latency is None:
            continue
        value = gaps[objective.name.rsplit("_", 1)[1]] if objective.latency == "itl" else _single(request, objective)
        if value is not None and value > objective.limit:
            return False
    return True


def _single(request: Request, objective: Objective) -> float | None:
    return {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}[objective.latency or ""](request)


def goodput_rps(record: Record, objectives: Sequence[Objective]) -> float | None:
    """Successful requests that meet every latency objective / (last token - first arrival). Unit requests/s.

    None without objectives.
    """
    duration = duration_s(record)
    if not objectives or duration is None:
        return None
    return sum(meets(request, objectives) for request in record["requests"]) / duration


def slo_attainment(record: Record, objectives: Sequence[Objective]) -> float | None:
    """Share (0..1) of requests, failed ones included, that meet every latency objective; None without objectives."""
    if not objectives or not record["requests"]:
        return None
    return sum(meets(request, objectives) for request in record["requests"]) / len(record["requests"])


def check(metrics: Mapping[str, Any], objectives: Sequence[Objective]) -> list[dict[str, Any]]:
    """[{"name","limit","value","met"}] of the run as a whole; value and met are None where the run cannot tell.

    Percentiles are those of answered requests. A target that answers few is fast to those, so unless error_rate has a
    limit of its own, a pX objective is also missed once more than (100 - X) % of the requests failed, and any latency
    once all did; the row then has a "reason".
    """
    rows = []
    lost = {} if any(one.name == "error_rate" for one in objectives) else metrics
    for objective in objectives:
        if objective.latency is None:
            value = metrics.get(objective.name)
        else:
            value = metrics[f"{objective.latency}_s"][objective.name.rsplit("_", 1)[1]]
        met = None if value is None else value <= objective.limit
        rows.append({"name": objective.name, "limit": objective.limit, "value": value, "met": met})
        if reason := _too_many_failed(objective, lost):
            rows[-1] |= {"met": False, "reason": reason}
    return rows


def _too_many_failed(objective: Objective, metrics: Mapping[str, Any]) -> str | None:
    """Why a latency objective is missed whatever the answered requests took; None when it isn't, or no one knows."""
    failed, completed = metrics.get("failed") or 0, metrics.get("completed") or 0
    if objective.latency is None or not failed:
        return None
    statistic = objective.name.rsplit("_", 1)[1]
    every = failed + completed
    too_many = not completed or (statistic != "mean" and 100 * failed > (100 - int(statistic[1:])) * every)
    return f"{failed} of {every} requests failed" if too_many else None
