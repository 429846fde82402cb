"""Return by effort: what each step gained on one curve over what it costs, and whether the order is the article's.

A gain is a measured ratio, turned so that more is better, less one, in %; it was measured on top of what had been
adopted before. What was not adopted returns nothing, whatever it measured. Effort is hours, assumed. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.playbook.decide import from_nothing
from experiments.playbook.outcomes import ADOPTED

AGREES, DISAGREES, CANT_TELL = "agrees", "disagrees", "can't tell"
CLOSE = "too close"
INSTEAD = "output_tokens_per_s"
Row = dict[str, Any]


def gain_of(curve: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """(gain, low, high) of a compared curve in %; None where it was not measured. Ends equal it from a single pair."""
    if curve["change_pct"] is None:
        return None
    bounds = curve["ci95"] or [curve["change_pct"]] * 2
    if curve["better"] == "higher":
        return curve["change_pct"], bounds[0], bounds[1]
    turned = [100 * (1 / (1 + value / 100) - 1) for value in (curve["change_pct"], bounds[1], bounds[0])]
    return turned[0], turned[1], turned[2]


def return_rows(steps: Sequence[Mapping[str, Any]], aim: str) -> list[Row]:
    """A row a measured step, the best return first, in the ladder's order where it is equal.

    {"step","curve","outcome","measured_pct","ci95","gain_pct","effort","hours","return_pct_per_hour","return_ci95",
    "place","rank"}: curve is `aim`, or throughput where goodput came from nothing and has no ratio; measured_pct is
    what the comparison saw, gain_pct what was kept of it; place counts from 1.
    """
    rows = [_row(step, aim) for step in steps if step.get("comparison")]
    rows.sort(key=lambda row: -row["return_pct_per_hour"])  # a stable sort
    return [{**row, "place": place} for place, row in enumerate(rows, start=1)]


def _row(step: Mapping[str, Any], aim: str) -> Row:
    curves = {one["name"]: one for one in step["comparison"]["curves"]}
    curve = curves.get(aim)
    if curve is not None and from_nothing(curve):
        curve = curves.get(INSTEAD)
    found = None if curve is None else gain_of(curve)
    counted = found if found is not None and curve is not None and curve["verdict"] == "better" else (0.0, 0.0, 0.0)
    gain = counted if step["outcome"] == ADOPTED else (0.0, 0.0, 0.0)
    hours = float(step["hours"])
    return {
        "step": step["name"],
        "curve": aim if curve is None else curve["name"],
        "outcome": step["outcome"],
        "measured_pct": None if found is None else found[0],
        "ci95": None if found is None else [found[1], found[2]],
        "gain_pct": gain[0],
        "effort": step["effort"],
        "hours": hours,
        "return_pct_per_hour": gain[0] / hours,
        "return_ci95": [gain[1] / hours, gain[2] / hours],
        "rank": step["rank"],
    }


def order_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Against the article's order, pair by pair of the steps that it ranks apart.

    {"verdict": AGREES, DISAGREES or CANT_TELL, "measured": names by return, "article": the same by rank, "pairs":
    [{"first","second","verdict"}]}: first is ranked higher; a pair whose intervals overlap is CLOSE.
    """
    ranked = [row for row in rows if row["rank"] is not None]
    by_rank = sorted(ranked, key=lambda row: row["rank"])
    pairs = [
        {"first": one["step"], "second": two["step"], "verdict": _pair(one, two)}
        for place, one in enumerate(by_rank)
        for two in by_rank[place + 1 :]
        if one["rank"] < two["rank"]
    ]
    said = {pair["verdict"] for pair in pairs}
    verdict = DISAGREES if DISAGREES in said else AGREES if AGREES in said else CANT_TELL
    return {
        "verdict": verdict,
        "measured": [row["step"] for row in ranked],
        "article": [row["step"] for row in by_rank],
        "pairs": pairs,
    }


def _pair(one: Row, two: Row) -> str:
    if one["return_ci95"][0] > two["return_ci95"][1]:
        return AGREES
    return DISAGREES if two["return_ci95"][0] > one["return_ci95"][1] else CLOSE
