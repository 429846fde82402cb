"""C30: two gains that get in each other's way, measured one at a time and both at once.

The pair: drafts by look-up, and more seats. Both fill a step with more rows. A step of one row reads all the weights
for one token, so rows beside it are nearly free: four drafts to be checked, or seven other requests. With eight
requests a step has eight rows already, and the same drafts make it 40: the processor computes for longer than it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.comparison import (
    FAILS,
    HOLDS,
    LIMITED,
    UNDECIDED,
    Factorial,
    Verdict,
    effect_curve,
    effect_rows,
    factorial_spec,
)

RATE = "output_tokens_per_s"
# Answers repeat their prompts, so that drafts are accepted; requests come fast enough to fill eight seats at once.
LOAD = {"workload": "copy", "num_requests": 8, "rate_rps": 20.0, "max_tokens_cap": 48}
SETTINGS = {"num_draft_tokens": 4, "draft_control": "fixed"}
FACTORS = [["speculation", ["off", "ngram"]], ["max_num_seqs", [1, 8]]]


def check(options: Mapping[str, Any], factorial: Factorial) -> dict[str, Any]:
    """Runs the four arms; are both together worth less than the product of what each is worth alone?"""
    spec = factorial_spec(options, SETTINGS, repeats=5, factors=FACTORS, **LOAD)
    result = factorial(spec)
    reading = next(reading for reading in result["readings"] if reading["curve"] == RATE)
    alone = [effect_curve(result, effect, RATE)["verdict"] for effect in ("first_alone", "second_alone")]
    verdict, reason = judge(reading, alone)
    return {"verdict": verdict, "reason": reason, "evidence": effect_rows(spec, result, RATE)}


def judge(reading: Mapping[str, Any], alone: list[str]) -> Verdict:
    """From a throughput reading of the 2 x 2, and the verdicts of each gain alone (drafts, seats)."""
    if reading["together_pct"] is None or reading["interaction_ci95"] is None:
        return UNDECIDED, "it takes at least two repeats of all four arms"
    drafts, seats, both, product = (
        1 + reading[f"{name}_pct"] / 100 for name in ("first_alone", "second_alone", "together", "product")
    )
    text = f"throughput with drafts alone x{drafts:.2f}, with eight seats alone x{seats:.2f}; together they give "
    text += f"x{both:.2f}, their product would be x{product:.2f}"
    if reading["verdict"] == "inconclusive":
        return UNDECIDED, f"{text}; more repeats would decide whether it is less"
    if reading["verdict"] != "worse":
        return FAILS, f"{text}: these two do not get in each other's way here"
    if alone == ["better", "better"]:
        lost = "; beside the seats the drafts cost more than they bring" if both < seats else ""
        return HOLDS, f"{text}{lost}"
    if "inconclusive" in alone:
        return UNDECIDED, f"{text}, less than it; more repeats would decide whether each is a gain by itself"
    return LIMITED, f"{text}, but not both are gains by themselves here"
