"""What follows from a sweep: goodput, cost against latency, the limit of an instance, when to add one, how many.

Pure functions over the points of a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.capacity import FOUND, OVER_CEILING, UNDER_FLOOR, HighestRate

Points = Sequence[Mapping[str, Any]]
MET_AGAIN = "; a higher load met them again, which is not relied on"


def best_goodput(points: Points) -> dict[str, Any] | None:
    """{"goodput_rps","label","value"} of the point with the most; None without objectives."""
    known = [point for point in points if point["goodput_rps"] is not None]
    if not known:
        return None
    best = max(known, key=lambda point: point["goodput_rps"])
    return {"goodput_rps": best["goodput_rps"], "label": best["label"], "value": best["value"]}


def pareto(points: Points, latency: str) -> list[int]:
    """Places of the points that no other one beats: none is at most as dear and at most as slow, and better in one.

    Cost is that of a million output tokens, latency the named field of a point; points without either are left out.
    """
    pairs = {
        place: (point["cost_per_million_output_tokens"], point[latency])
        for place, point in enumerate(points)
        if point["cost_per_million_output_tokens"] is not None and point[latency] is not None
    }
    return [
        place
        for place, mine in pairs.items()
        if not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in pairs.values())
    ]


def limits(
    points: Points,
    search: HighestRate | None,
    knees: Mapping[str, Mapping[str, Any]],
    *,
    has_objectives: bool,
    unsearchable: str | None = None,
    headroom: float,
    scale_out_at: float,
    demand_rps: float | None,
) -> dict[str, Any]:
    """{"basis","outcome","highest","highest_label","highest_rps","instance_limit_rps","headroom","scale_out_at",
    "scale_out_rps","demand_rps","instances","formula","reason","provenance"}.

    basis: "objectives" (the highest load that meets them), or without objectives "knee": the last load before the first
    of the knees. highest_rps: the rate sent there, or the requests/s that so many clients got. instance_limit_rps =
    highest_rps x (1 - headroom); scale_out_rps = scale_out_at x that; instances = demand / scale_out_rps, rounded up,
    so that none is above it. unsearchable: the objective by which there is no highest load. Figures that the sweep does
    not give are None, with the reason.
    """
    if unsearchable is not None:
        outcome, value = "unknown", None
        reason = f"{unsearchable} does not rise with the load: the points say which loads meet it, none is the highest"
    elif has_objectives:
        outcome, value, reason = _by_objectives(points, search)
    else:
        outcome, value, reason = _by_knees(points, knees)
    at = None if value is None else _at(points, value)
    highest = None if at is None else at["load"]["rate_rps"] or at["requests_per_s"]
    limit = None if highest is None else highest * (1 - headroom)
    scale_out = None if limit is None else limit * scale_out_at
    return {
        "basis": "objectives" if has_objectives else "knee",
        "outcome": outcome,
        "highest": value,
        "highest_label": None if at is None else at["label"],
        "highest_rps": highest,
        "headroom": headroom,
        "instance_limit_rps": limit,
        "scale_out_at": scale_out_at,
        "scale_out_rps": scale_out,
        "demand_rps": demand_rps,
        "instances": None if not scale_out or demand_rps is None else math.ceil(demand_rps / scale_out),
        "formula": _formula(highest, headroom, limit, scale_out_at, scale_out, demand_rps),
        "reason": reason,
        "provenance": "computed",
    }


def _by_objectives(points: Points, search: HighestRate | None) -> tuple[str, float | None, str]:
    told = [point for point in points if point["meets"] is not None and point["value"] is not None]
    if not told:
        return "unknown", None, "no point can tell whether it meets the objectives"
    if search is not None:
        return search.outcome, search.rate, _searched(search)
    missed = min((point["value"] for point in told if not point["meets"]), default=None)
    met = [point["value"] for point in told if point["meets"] and (missed is None or point["value"] < missed)]
    again = missed is not None and any(point["meets"] and point["value"] > missed for point in told)
    more = MET_AGAIN if again else ""
    if not met:
        return UNDER_FLOOR, None, f"the objectives are missed at {missed:g} already{more}"
    if missed is None:
        return OVER_CEILING, max(met), f"the objectives are met up to {max(met):g}, the highest that was measured"
    return FOUND, max(met), f"the objectives are met at {max(met):g} and missed at {missed:g}{more}"


def _searched(search: HighestRate) -> str:
    if search.rate is None:
        return f"the objectives are missed at {search.missed_at:g} already"
    if search.missed_at is None:
        return f"the objectives are met up to {search.rate:g}, the highest that was measured"
    more = "" if search.monotone else MET_AGAIN
    return f"the objectives are met at {search.rate:g} and missed at {search.missed_at:g}{more}"


def _by_knees(points: Points, knees: Mapping[str, Mapping[str, Any]]) -> tuple[str, float | None, str]:
    """The last load before the first knee; where the very first load is beyond one, there is none."""
    found = {name: knee for name, knee in knees.items() if knee["found"]}
    if not found:
        return OVER_CEILING, None, "no knee was reached, and no objective given: a limit takes one of the two"
    name, knee = min(found.items(), key=lambda item: item[1]["next_load"])
    if knee["load"] is None:
        return UNDER_FLOOR, None, f"the lowest load is beyond the {name} knee already"
    return FOUND, knee["load"], f"the last load before the {name} knee"


def _at(points: Points, value: float) -> Mapping[str, Any] | None:
    return next((point for point in points if point["value"] == value), None)


def _formula(
    highest: float | None,
    headroom: float,
    limit: float | None,
    share: float,
    scale_out: float | None,
    demand: float | None,
) -> str | None:
    if highest is None or limit is None or scale_out is None:
        return None
    text = f"{highest:.4g} x (1 - {headroom:g}) = {limit:.4g} requests/s; x {share:g} = {scale_out:.4g}"
    return text if demand is None else f"{text}; ceil({demand:g} / {scale_out:.4g}) = {math.ceil(demand / scale_out)}"
