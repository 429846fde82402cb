"""How good the advisor's predictions have been: hit rate, coverage of its bands, against two rules that know nothing.

Pure over outcomes (record.py). The rules: "no change", whatever is changed; and the fixed order in which many guides
rank optimisations by effort and gain (continuous batching with paging, KV quantization, W8A8, then speculation and
prefill apart from decode), each of which is said to help, and anything else to do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

from core_engine.variables import LOOK_UPS, TRAINED_DRAFTS
from experiments.advisor.prediction_estimate import BETTER, CURVES, NO_DIFFERENCE, QUALITY, WORSE
from experiments.advisor.record import Outcome, outcomes, predicted_runs
from experiments.proportions import wilson_interval
from experiments.store import Store

GOALS = {"direction": 0.85, "coverage": (0.70, 0.90), "half_width_points": 15.0}
# What the fixed order calls an improvement: variable -> values, those further right said to be better.
FIXED_ORDER: dict[str, tuple[tuple[str, ...], ...]] = {
    "batching": (("static", "dynamic"), ("continuous",)),
    "kv_layout": (("contiguous",), ("paged",)),
    "kv_dtype": (("auto", "fp32", "bf16", "fp16"), ("fp8", "int8"), ("int4", "int2")),
    "weights": (("none",), ("w8a8",)),
    "speculation": (("off",), (*LOOK_UPS, *TRAINED_DRAFTS)),
    "disaggregation": (("off",), ("on",)),
}

Rule = Callable[[Outcome], str | None]


def no_change(outcome: Outcome) -> str:
    """Nothing ever helps or harms."""
    return NO_DIFFERENCE


def fixed_order(outcome: Outcome) -> str:
    """What is in the order helps every curve but quality, which it leaves alone; its opposite harms."""
    ranks = FIXED_ORDER.get(outcome.variable, ())
    places = [next((at for at, names in enumerate(ranks) if str(value) in names), None) for value in outcome.values]
    first, second = places
    if outcome.curve == QUALITY or first is None or second is None or first == second:
        return NO_DIFFERENCE
    return BETTER if second > first else WORSE


def score(store: Store) -> dict[str, Any]:
    """The score of every predicted comparison of a store; see `score_of`."""
    return score_of([outcome for run in predicted_runs(store) for outcome in outcomes(run)])


def score_of(found: Sequence[Outcome]) -> dict[str, Any]:
    """{"comparisons","curves","unpredicted","undecided","overall","by_curve","by_source","baselines","goals"}.

    overall and each part: {"direction": {"right","of","share","ci95"}, "bands": {"covered","of","share","ci95"},
    "half_width_points","error_points"}; half-width and error are medians of the band's half and of |measured -
    predicted|, in points of %. Baselines are scored on the very curves that have a prediction.
    """
    said = [one for one in found if one.predicted is not None]
    return {
        "comparisons": len({one.run_id for one in found}),
        "curves": len(found),
        "unpredicted": len(found) - len(said),
        "undecided": sum(not one.is_decided for one in said),
        "overall": _part(said),
        "timed": _part([one for one in said if one.curve != QUALITY]),
        "by_curve": {name: _part([one for one in said if one.curve == name]) for name in CURVES},
        "by_source": {name: _part([o for o in said if o.source == name]) for name in sorted({o.source for o in said})},
        "baselines": {
            "no change": _rule(said, no_change, error=True),
            "fixed order": _rule(said, fixed_order, error=False),
        },
        "goals": GOALS | {"coverage": list(GOALS["coverage"])},  # type: ignore[call-overload]
    }


def _part(said: Sequence[Outcome]) -> dict[str, Any]:
    bands = [one for one in said if one.covered is not None]
    halves = [(one.band80_pct[1] - one.band80_pct[0]) / 2 for one in bands if one.band80_pct is not None]
    return {
        "direction": _share([bool(one.is_right) for one in said if one.is_decided], "right"),
        "bands": _share([bool(one.covered) for one in bands], "covered"),
        "half_width_points": median(halves) if halves else None,
        "error_points": _error([(one, one.predicted_pct) for one in bands]),
    }


def _rule(said: Sequence[Outcome], rule: Rule, *, error: bool) -> dict[str, Any]:
    decided = [one for one in said if one.is_decided]
    bands = [one for one in said if one.covered is not None]
    timed = [one for one in decided if one.curve != QUALITY]
    return {
        "direction": _share([rule(one) == one.measured for one in decided], "right"),
        "timed_direction": _share([rule(one) == one.measured for one in timed], "right"),
        # The order names no sizes, so that only "no change", which is 0 %, has an error.
        "error_points": _error([(one, 0.0) for one in bands]) if error else None,
    }


def _share(hits: Sequence[bool], name: str) -> dict[str, Any]:
    if not hits:
        return {name: 0, "of": 0, "share": None, "ci95": None}
    return {name: sum(hits), "of": len(hits), "share": fmean(hits), "ci95": list(wilson_interval(sum(hits), len(hits)))}


def _error(pairs: Sequence[tuple[Outcome, float | None]]) -> float | None:
    sizes = [abs(one.measured_pct - said) for one, said in pairs if said is not None and one.measured_pct is not None]
    return median(sizes) if sizes else None
