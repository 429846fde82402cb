"""C10: does continuous batching raise throughput, and on what does the gain depend?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import Compare, curve_row, spec_of

CURVE = "output_tokens_per_s"
# (key, workload, baseline, candidate)
PARTS = (
    ("static_mixed", "mixed", "static", "continuous"),
    ("dynamic_mixed", "mixed", "dynamic", "continuous"),
    ("static_equal", "equal", "static", "continuous"),
)
NOT_CHECKED = "that it is the largest of all single gains: this takes the other optimisations, measured the same way"


def check(options: Mapping[str, Any], compare: Compare) -> dict[str, Any]:
    """Runs the three comparisons and judges them; `options` are further keys of each comparison's spec."""
    evidence = []
    for key, workload, baseline, candidate in PARTS:
        spec = spec_of(options, repeats="auto", variable="batching", values=[baseline, candidate], workload=workload)
        evidence.append(curve_row(key, spec, compare(spec), CURVE))
    verdict, reason = judge({row["part"]: row for row in evidence})
    return {"verdict": verdict, "reason": reason, "not_checked": NOT_CHECKED, "evidence": evidence}


def judge(rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """(verdict, reason) from the throughput row of each part of PARTS.

    Equal lengths need no verdict of their own where the gain there is smaller beyond doubt: the claim's limit is that
    the gain comes from the spread of lengths.
    """
    static, dynamic, equal = (rows[key]["verdict"] for key, *_ in PARTS)
    if static in ("worse", "no difference"):
        return (
            "does not hold here",
            "throughput over static batching did not rise on mixed lengths",
        )
    if (static, dynamic, equal) == ("better", "better", "inconclusive"):
        mixed_ends, equal_ends = rows["static_mixed"]["ci95"], rows["static_equal"]["ci95"]
        if mixed_ends and equal_ends and equal_ends[1] < mixed_ends[0]:
            return "holds with a limit", (
                f"when all answers are equally long and come at once the gain is at most {equal_ends[1]:.0f} %, and at "
                f"least {mixed_ends[0]:.0f} % on mixed lengths; whether any is left there is not decided"
            )
    if "inconclusive" in (static, dynamic, equal):
        return "undecided", "at least one comparison is inconclusive; more repeats would decide it"
    if dynamic != "better":
        return "holds with a limit", "the gain is there over static batching, but not over dynamic batching"
    if equal != "better":
        return (
            "holds with a limit",
            "the gain is gone when all answers are equally long and come at once",
        )
    return "holds", "throughput rose over static and dynamic batching, with equal lengths too"
