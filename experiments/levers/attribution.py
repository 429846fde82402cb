"""Which part of a saving is whose. Pure functions over the cost of every arm in every repeat.

A lever's own saving is the change of cost per request with it alone, paired with the baseline's run of the same repeat,
judged as a comparison's curves are and Holm-corrected over all levers: they are asked at once. What all save together
is measured too, and set against

- the sum of the single savings, which is what adding them up would promise, and
- their product, which they would save if each took its share of what the others leave.

r = ln(all / baseline) - sum of ln(each / baseline), a value a repeat, says how they act on each other: above 0 they
overlap (two levers save the same seconds), below 0 they help each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.statistics import EQUIVALENCE_MARGIN, CurveSamples, CurveVerdict, judge, mean_interval

Costs = Sequence[float | None]
OVERLAP, REINFORCE, INDEPENDENT, UNDECIDED = "overlap", "reinforce", "independent", "undecided"


def judge_costs(costs: Sequence[Costs], provenance: str) -> list[CurveVerdict]:
    """A verdict for every arm but the first against it. costs: [arms][repeats] per request."""
    curves = [
        CurveSamples("cost_per_request", "mean", "lower", list(costs[0]), list(arm), provenance) for arm in costs[1:]
    ]
    return judge(curves)


def saved(verdict: CurveVerdict) -> dict[str, Any]:
    """{"saved_pct","saved_ci95"} of cost per request; negative where it became dearer."""
    low_high = verdict.ci95
    return {
        "saved_pct": None if verdict.change_pct is None else -verdict.change_pct,
        "saved_ci95": None if low_high is None else [-low_high[1], -low_high[0]],
    }


def together(costs: Sequence[Costs]) -> dict[str, Any] | None:
    """{"sum_of_each_pct","product_of_each_pct","together_pct","interaction": {"ratio","ci95","verdict","reason"}}.

    costs: [baseline, each lever, all][repeats]. None below two levers.
    """
    if len(costs) < 4:
        return None
    rows = [row for row in zip(*costs, strict=False) if all(row)]
    logs = [[math.log(value / row[0]) for value in row[1:] if value and row[0]] for row in rows]
    if not logs:
        return {**dict.fromkeys(("sum_of_each_pct", "product_of_each_pct", "together_pct")),
                "interaction": _interaction([])}  # fmt: skip
    means = [sum(column) / len(logs) for column in zip(*logs, strict=True)]
    return {
        "sum_of_each_pct": sum(-100 * math.expm1(mean) for mean in means[:-1]),
        "product_of_each_pct": -100 * math.expm1(sum(means[:-1])),
        "together_pct": -100 * math.expm1(means[-1]),
        "interaction": _interaction([row[-1] - sum(row[:-1]) for row in logs]),
    }


def _interaction(values: Sequence[float]) -> dict[str, Any]:
    found = mean_interval(values)
    if found is None:
        ratio = math.exp(values[0]) if values else None
        return {"ratio": ratio, "ci95": None, "verdict": UNDECIDED, "reason": "it takes two repeats at least"}
    ratio, low, high = (math.exp(value) for value in (found.mean, found.low, found.high))
    margin = 1 + EQUIVALENCE_MARGIN
    if 1 / margin <= low and high <= margin:
        verdict, reason = INDEPENDENT, f"the cost with all is within {EQUIVALENCE_MARGIN:.0%} of what the product says"
    elif low > 1:
        verdict, reason = OVERLAP, f"with all it costs {ratio:.2f} times what the product says: they save the same work"
    elif high < 1:
        verdict, reason = REINFORCE, f"with all it costs {ratio:.2f} times what the product says: they help each other"
    else:
        verdict, reason = UNDECIDED, "the interval neither excludes 1 nor lies close to it"
    return {"ratio": ratio, "ci95": [low, high], "verdict": verdict, "reason": reason}
