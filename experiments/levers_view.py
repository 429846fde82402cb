"""A stored experiment with levers as what the Cost page shows: rows of the chart and of the table, the figures of the
sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.store import Run

ALL = "together"
BETTER, WORSE = "better", "worse"


def shown_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """Those that have a result, by id, in their order."""
    return {run.id: run for run in runs if run.kind == "levers" and run.result is not None and run.result["levers"]}


def lever_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a lever, and one for all: name, from, to, saved (%), ends, verdict, quality (a verdict or None),
    quality_change_pct, same_answers_share, hit_rate, escalated_share, kept_share, per_million, is_all, provenance."""
    rows = [_row(row["name"], row, is_all=False) for row in result["levers"]]
    both = result["together"]
    return [*rows, _row(ALL, both, is_all=True)] if both is not None else rows


def _row(name: str, row: Mapping[str, Any], *, is_all: bool) -> dict[str, Any]:
    quality = row["quality"] or {}
    return {
        "name": name,
        "from": row.get("from"),
        "to": row.get("to"),
        "saved": row["saved_pct"],
        "ends": row["saved_ci95"],
        "verdict": row["verdict"],
        "quality": quality.get("verdict"),
        "quality_change_pct": quality.get("change_pct"),
        "same_answers_share": row["same_answers_share"],
        "hit_rate": (row["answer_cache"] or {}).get("hit_rate"),
        "escalated_share": (row["router"] or {}).get("escalated_share"),
        "kept_share": (row["prompt_compression"] or {}).get("kept_share"),
        "per_million": row["saved_per_million_requests"],
        "is_all": is_all,
        "provenance": row["provenance"],
    }


def largest(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The lever that was seen to save most, and loses no quality; None when none was."""
    rows = [row for row in lever_rows(result) if not row["is_all"] and row["verdict"] == BETTER]
    return max((row for row in rows if row["quality"] != WORSE), key=lambda row: row["saved"], default=None)


def losing_quality(result: Mapping[str, Any]) -> list[str]:
    """Levers whose answers the baseline finds less likely."""
    return [row["name"] for row in lever_rows(result) if row["quality"] == WORSE and not row["is_all"]]
