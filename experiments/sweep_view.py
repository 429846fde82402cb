"""A stored sweep as what its page shows: rows of charts and of the table, the verdict's figures, the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.capacity import OVER_CEILING

Point = Mapping[str, Any]
# figure -> where it is in a point, and in one of its repeats
LATENCIES = {"ttft": "ttft_p95_s", "itl": "itl_p95_s"}
ON_AXIS = ("asked", "between", "bisection")


@dataclass(frozen=True)
class Band:
    """Where a knee lies, in the load's unit. low is None where the first load is beyond it already."""

    low: float | None
    high: float


@dataclass(frozen=True)
class Verdict:
    """The figures of the sentence on top. kind: "limit" (an instance limit is known), "knee" (a knee, no limit),
    "bound" (neither was reached up to `top`) or "variable" (one load, the best value is `best`). at_least: no load
    above the limit was measured. reason: of the limit, or why there is none."""

    kind: str
    latency: Band | None
    memory: Band | None
    limit_rps: float | None
    scale_out_rps: float | None
    instances: int | None
    demand_rps: float | None
    top: str
    best: str | None
    at_least: bool = False
    reason: str = ""


def swept(result: Mapping[str, Any]) -> list[Point]:
    """The points that have a place on the axis, ascending."""
    return [point for point in result["points"] if point["origin"] in ON_AXIS]


def is_numeric(result: Mapping[str, Any]) -> bool:
    """Whether the axis is a scale, and not names."""
    return all(isinstance(point["value"], int | float) for point in swept(result))


def band(knee: Mapping[str, Any]) -> Band | None:
    """The step in which a knee lies; None where none was found or it is on no scale."""
    high = knee.get("next_load")
    return Band(knee["load"], float(high)) if knee["found"] and isinstance(high, int | float) else None


def verdict(result: Mapping[str, Any]) -> Verdict:
    """What the sentence says."""
    knees, limits = result["knees"], result["limits"]
    latency, memory = band(knees["latency"]), band(knees["memory"])
    if limits is None:
        kind = "variable"
    elif limits["instance_limit_rps"] is not None:
        kind = "limit"
    else:
        kind = "knee" if latency or memory else "bound"
    shown = swept(result) or result["points"]
    return Verdict(
        kind=kind,
        latency=latency,
        memory=memory,
        limit_rps=limits and limits["instance_limit_rps"],
        scale_out_rps=limits and limits["scale_out_rps"],
        instances=limits and limits["instances"],
        demand_rps=limits and limits["demand_rps"],
        top=shown[-1]["label"],
        best=_best(result),
        at_least=bool(limits) and limits["outcome"] == OVER_CEILING,
        reason=limits["reason"] if limits else "",
    )


def _best(result: Mapping[str, Any]) -> str | None:
    """The value with the most goodput, or without objectives with the most tokens/s."""
    if result["goodput"] is not None:
        return str(result["goodput"]["label"])
    known = [point for point in result["points"] if point["output_tokens_per_s"] is not None]
    return str(max(known, key=lambda point: point["output_tokens_per_s"])["label"]) if known else None


def curve(result: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """{"x","label","y","low","high"} of a figure at every point on the axis; low and high are the repeats' ends."""
    rows = []
    for point in swept(result):
        if point.get(name) is None:
            continue
        values = [one[name] for one in point["repeats"] if one.get(name) is not None] or [point[name]]
        rows.append({"x": point["value"], "label": point["label"], "y": point[name], "low": min(values),
                     "high": max(values)})  # fmt: skip
    return rows


def trade(result: Mapping[str, Any], x: str, y: str, front: str | None = None) -> list[dict[str, Any]]:
    """{"x","y","value","label","front"} of every point that has both figures; front: whether it is on that
    Pareto front."""
    return [
        {"x": point[x], "y": point[y], "value": point["value"], "label": point["label"],
         "front": front in point.get("pareto", [])}
        for point in result["points"]
        if point[x] is not None and point[y] is not None
    ]  # fmt: skip


def memory_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"x","label","y","pressed"} of the largest share of the pool that was taken, %, where the target tells."""
    return [
        {"x": point["value"], "label": point["label"], "y": 100 * point["kv"]["peak_share"],
         "low": 100 * point["kv"]["peak_share"], "high": 100 * point["kv"]["peak_share"],
         "pressed": bool(point["kv"]["pressed"])}
        for point in swept(result)
        if point["kv"]["known"]
    ]  # fmt: skip


def table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every figure of every point as a number, for the table and the file."""
    return [
        {
            "point": point["label"], "origin": point["origin"], "requests": point["num_requests"],
            "output_tokens_per_s": point["output_tokens_per_s"], "requests_per_s": point["requests_per_s"],
            "offered_rps": point["offered_rps"], "served_rps": point["served_rps"], "queue_grows": point["growing"],
            "ttft_p50_s": point["metrics"]["ttft_s"]["p50"], "ttft_p95_s": point["ttft_p95_s"],
            "itl_p50_s": point["metrics"]["itl_s"]["p50"], "itl_p95_s": point["itl_p95_s"],
            "e2e_p95_s": point["metrics"]["e2e_s"]["p95"], "s_per_output_token": point["latency_per_token_s"],
            "goodput_rps": point["goodput_rps"], "slo_attainment": point["slo_attainment"], "meets": point["meets"],
            "kv_peak_share": point["kv"]["peak_share"], "preemptions": point["kv"]["preemptions"],
            "kv_wait_steps_share": point["kv"]["wait_steps_share"], "failed": point["metrics"]["failed"],
            "cost_per_million_output_tokens": point["cost_per_million_output_tokens"],
            "cost_per_request": point["cost_per_request"], "pareto": " ".join(point["pareto"]),
        }
        for point in result["points"]
    ]  # fmt: skip


def sweep_command(spec: Mapping[str, Any]) -> str:
    """The command line that measures the same."""
    values: Sequence[Any] = spec["values"]
    over = f"{spec['over']}={','.join(map(str, values))}" if values else spec["over"]
    words = ["trilemma sweep", f"--over {over}", f"--workload {shlex.quote(str(spec['workload']))}"]
    options = {
        "requests": spec["num_requests"], "rate": spec["rate_rps"], "concurrency": spec["concurrency"],
        "max-output": spec["max_tokens_cap"], "slo": spec["slo"], "demand": spec["demand_rps"],
        "points": spec["auto_points"] if spec["over"] == "auto" else None,
        "repeats": spec["repeats"] if spec["repeats"] != 1 else None,
        "price-per-device-hour": spec["price_per_device_hour"] if spec["price_per_device_hour"] != 1 else None,
        "seed": spec["seed"] or None,
    }  # fmt: skip
    words += [f"--{name} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
              for name, value in options.items() if value is not None]  # fmt: skip
    return " ".join([*words, *(f"--set {name}={value}" for name, value in spec["settings"].items())])
