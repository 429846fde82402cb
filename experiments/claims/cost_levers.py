"""C49: cost falls with fewer tokens, fewer card-hours or more requests at once, each saving measured on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict

Levers = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.levers -> its JSON; the run that holds it is named in `run_id`."""

# One lever of every way that the claim names, and both of those that it names twice.
CHOSEN = ("prefix_cache", "answer_cache", "compression", "routing", "weights", "batching", "concurrency")
WAYS = {"tokens": "fewer tokens", "device": "fewer card-hours", "concurrency": "more concurrency"}
REPEATS, REQUESTS = 5, 16
BETTER, WORSE, SAME = "better", "worse", "no difference"
KEPT = (
    "name", "variable", "from", "to", "works_on", "saved_pct", "saved_ci95", "verdict", "noise_floor_pct", "figures",
)  # fmt: skip


def check(options: Mapping[str, Any], levers: Levers) -> dict[str, Any]:
    """Every lever alone and all together on one workload with a long shared prompt and questions that come again."""
    given = {name: value for name, value in options.items() if name != "repeats"}
    repeats = options.get("repeats", REPEATS)
    chosen = {"levers": list(CHOSEN), "repeats": REPEATS if repeats == "auto" else repeats}
    result = levers({"num_requests": REQUESTS, **given, **chosen})
    verdict, reason = judge(result["levers"], result["attribution"])
    rows = [
        {
            "part": row["name"], **{name: row[name] for name in KEPT},
            "quality": None if row["quality"] is None else {k: row["quality"][k] for k in ("verdict", "change_pct")},
            "router": row["router"], "prompt_compression": row["prompt_compression"],
            "repeats": result["repeats"], "run_id": result["run_id"], "provenance": row["provenance"],
        }
        for row in result["levers"]
    ]  # fmt: skip
    both = {"part": "together", **(result["attribution"] or {}), "repeats": result["repeats"],
            "run_id": result["run_id"], "provenance": result["provenance"]}  # fmt: skip
    return {"verdict": verdict, "reason": reason, "evidence": [*rows, both]}


def judge(rows: Sequence[Mapping[str, Any]], attribution: Mapping[str, Any] | None) -> Verdict:
    """Holds when every way has a lever that saves and no lever fails to; limited when every way has one and some lever
    saves nothing, makes it dearer, or costs quality; fails when a way was measured and none of its levers saves."""
    saving = {way: [row for row in rows if row["works_on"] == way and row["verdict"] == BETTER] for way in WAYS}
    told = "; ".join(f"{row['name']} {_saved(row)}" for row in rows)
    lines = f"saved of the cost of a request: {told}{_sum(attribution)}"
    for way, words in WAYS.items():
        if saving[way]:
            continue
        verdicts = [row["verdict"] for row in rows if row["works_on"] == way]
        decided = bool(verdicts) and all(verdict in (WORSE, SAME) for verdict in verdicts)
        return (FAILS if decided else UNDECIDED), f"{words}: no lever is seen to save; {lines}"
    idle = [row["name"] for row in rows if row["verdict"] != BETTER]
    worse = [row["name"] for row in rows if row["verdict"] == BETTER and _costs_quality(row)]
    limits = [f"not seen to save: {', '.join(idle)}" if idle else "",
              f"at a loss of quality: {', '.join(worse)}" if worse else ""]  # fmt: skip
    limit = "; ".join(filter(None, limits))
    return (LIMITED, f"each of the three ways saves; {limit}; {lines}") if limit else (HOLDS, lines)


def _costs_quality(row: Mapping[str, Any]) -> bool:
    return row["quality"] is not None and row["quality"]["verdict"] == WORSE


def _saved(row: Mapping[str, Any]) -> str:
    if row["saved_pct"] is None:
        return "unknown"
    low, high = row["saved_ci95"] or (None, None)
    ends = "" if low is None else f" [{low:.0f}, {high:.0f}]"
    return f"{row['saved_pct']:.0f} %{ends}"


def _sum(attribution: Mapping[str, Any] | None) -> str:
    if attribution is None or attribution["together_pct"] is None:
        return ""
    return (
        f"; together {attribution['together_pct']:.0f} %, where adding them up says"
        f" {attribution['sum_of_each_pct']:.0f} % and their product {attribution['product_of_each_pct']:.0f} %"
    )
