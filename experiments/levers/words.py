"""Findings about levers in words, for the command line; the page has its own catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOTHING = "–"
Row = Mapping[str, Any]


def saving(row: Row) -> tuple[str, str]:
    """What it saved of the cost of a request, and the interval."""
    share, ends = row["saved_pct"], row["saved_ci95"]
    return (
        NOTHING if share is None else f"{share:.1f} %",
        NOTHING if ends is None else f"{ends[0]:.1f} to {ends[1]:.1f}",
    )


def quality_words(row: Row) -> str:
    """The verdict of the quality curve with its change; unknown where no answers were read."""
    found = row["quality"]
    if found is None:
        return "unknown: simulated" if row["provenance"] == "simulated" else "unknown"
    changed = "" if found["change_pct"] is None else f", {found['change_pct']:+.1f} %"
    same = "" if row["same_answers_share"] is None else f", {row['same_answers_share']:.0%} same answers"
    return f"{found['verdict']}{changed}{same}"


def change(row: Row) -> str:
    """What moved because of it, in its own terms."""
    told = []
    if row.get("answer_cache"):
        found = row["answer_cache"]
        wrong = f", {found['wrong']} wrong of {found['judged']}" if found["judged"] else ""
        told.append(f"{(found['hit_rate'] or 0):.0%} hits{wrong}")
    if row.get("router"):
        found = row["router"]
        share = found["escalated_share"]
        told.append("nothing decided" if share is None else f"{share:.0%} escalated")
    if row.get("prompt_compression"):
        share = row["prompt_compression"]["kept_share"]
        told.append(NOTHING if share is None else f"{share:.0%} of prompt tokens kept")
    tokens = row["figures"]["prefill_tokens"]
    told.append(f"{tokens:,.0f} prompt tokens computed" if tokens is not None else "")
    return "; ".join(filter(None, told))


def attribution_sentence(result: Row) -> str:
    """What all save against what adding the single savings would promise."""
    found = result["attribution"]
    if found is None:
        return "one lever: nothing to set against it"
    if found["together_pct"] is None:
        return "no repeat has the cost of every arm"
    told = (
        f"together {found['together_pct']:.1f} %; the single savings add up to {found['sum_of_each_pct']:.1f} %, their "
        f"product says {found['product_of_each_pct']:.1f} %"
    )
    one = found["interaction"]
    words = {"overlap": "they overlap", "reinforce": "they help each other", "independent": "they act independently",
             "undecided": "whether they overlap is undecided"}  # fmt: skip
    return f"{told}: {words[one['verdict']]} ({one['reason']})"
