"""Whether a step is adopted, from what its comparison and its quality guard say. Pure; no words, only reasons as data.

The rule: adopted when at least one guarded curve is better, none is worse beyond the objectives, and quality is kept.
- *Worse within the objectives* is a price that was allowed: a curve that is worse still meets every objective on it,
  and there is one. Without an objective any `worse` forbids the step, and goodput may never fall.
- An objective that was met and is missed with the step forbids it, as do requests that fail beyond `error_rate`.
- A curve that is not decided but whose estimate is worse by more than what counts as no difference leaves the step
  undecided: it may be a loss. Not where that loss would be allowed, since every objective on the curve is met, and
  there is one. Undecided is never adopted, and says how many repeats or items it would take.
- What the guard can't see of a step (guard.py) leaves it undecided as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.playbook.outcomes import ADOPTED, LOST, NOT_DECIDED, ROLLED_BACK, UNDECIDED
from experiments.statistics import EQUIVALENCE_MARGIN, WIDEST_MARGIN

GUARDED = ("goodput_rps", "output_tokens_per_s", "ttft_s", "itl_s", "cost_per_request")
# Which objectives are about a guarded curve; the others count in goodput, and when they break.
OBJECTIVES = {"ttft_s": "ttft_", "itl_s": "itl_", "cost_per_request": "cost_per_request"}
# Codes of reasons that take a step back whatever it gains.
FORBIDDING = ("quality_lost", "worse", "objective", "failing", "answers")
Reason = dict[str, Any]


@dataclass(frozen=True)
class Decision:
    """outcome: ADOPTED, ROLLED_BACK or NOT_DECIDED. reasons: each {"code", ...}, the one that decided first."""

    outcome: str
    reasons: tuple[Reason, ...]


def decide(comparison: Mapping[str, Any], quality: Mapping[str, Any] | None) -> Decision:
    """From a comparison's JSON and the guard's, None where the step can't change an answer."""
    curves = [curve for curve in comparison["curves"] if curve["name"] in GUARDED]
    better = [curve for curve in curves if curve["verdict"] == "better" or _often_from_nothing(curve)]
    worse = [curve for curve in curves if curve["verdict"] == "worse" or to_nothing(curve)]
    allowed = [curve for curve in worse if _within_objectives(curve, comparison)]
    open_curves = [
        curve for curve in curves if curve["verdict"] == "inconclusive" and curve not in better and curve not in worse
    ]
    leaning = [curve for curve in open_curves if _leans_worse(curve) and not _within_objectives(curve, comparison)]
    forbids = [
        *([_quality_reason("quality_lost", quality)] if quality and quality["verdict"] == LOST else []),
        *([_said("worse", [one for one in worse if one not in allowed])] if len(worse) > len(allowed) else []),
        *_broken(comparison),
        *_failing(comparison),
        *_answers(comparison, quality),
    ]
    told = [
        *([_said("better", better)] if better else []),
        *([_said("allowed", allowed)] if allowed else []),
    ]
    if forbids:
        return Decision(ROLLED_BACK, (*forbids, *told))
    if not better:
        if open_curves:
            return Decision(NOT_DECIDED, (_open("open", open_curves), *told))
        return Decision(ROLLED_BACK, ({"code": "no_gain"}, *told))
    if leaning:
        return Decision(NOT_DECIDED, (_open("leaning", leaning), *told))
    if quality and quality["verdict"] == UNDECIDED:
        return Decision(NOT_DECIDED, (_quality_reason("quality_open", quality), *told))
    if quality and quality.get("unseen"):
        return Decision(NOT_DECIDED, ({"code": "unseen", "variables": quality["unseen"]}, *told))
    kept = [_quality_reason("quality_kept", quality)] if quality else []
    rest = [_open("not_told", open_curves)] if open_curves else []
    return Decision(ADOPTED, (*told, *kept, *rest))


def _said(code: str, curves: Sequence[Mapping[str, Any]]) -> Reason:
    return {"code": code, "curves": [_figures(curve) for curve in curves]}


def _figures(curve: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "change_pct", "ci95", "baseline", "candidate")
    nothing = {"from_nothing": from_nothing(curve), "to_nothing": to_nothing(curve), "mean_after": mean_after(curve)}
    return {name: curve[name] for name in names} | nothing


def _open(code: str, curves: Sequence[Mapping[str, Any]]) -> Reason:
    """repeats: what the first of them to be decided would take, None where that is not known."""
    needed = [curve["repeats_needed"] for curve in curves if curve.get("repeats_needed") is not None]
    pairs = max((curve.get("pairs") or 0 for curve in curves), default=0)
    return {**_said(code, curves), "repeats": min(needed, default=None), "made": pairs}


def _quality_reason(code: str, quality: Mapping[str, Any]) -> Reason:
    return {"code": code, **{name: quality[name] for name in ("drop", "ci95", "most_drop", "items", "items_needed",
                                                              "slices")}}  # fmt: skip


def from_nothing(curve: Mapping[str, Any]) -> bool:
    """A rate that was 0 in every repeat and is above it in every one with the step: no ratio can say that."""
    before, after = _samples(curve)
    return curve["better"] == "higher" and bool(before) and not any(before) and bool(after) and all(after)


def _often_from_nothing(curve: Mapping[str, Any]) -> bool:
    """From nothing in more than one pair: what happened once may be chance."""
    return from_nothing(curve) and min(map(len, _samples(curve))) > 1


def to_nothing(curve: Mapping[str, Any]) -> bool:
    """The other way round."""
    before, after = _samples(curve)
    return curve["better"] == "higher" and bool(before) and all(before) and bool(after) and not any(after)


def mean_after(curve: Mapping[str, Any]) -> float | None:
    """Of the samples with the step, which has a value where no ratio can be formed; None without samples."""
    after = _samples(curve)[1]
    return fmean(after) if after else None


def _samples(curve: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Those that were measured, before and with the step."""
    samples = curve.get("samples") or {}
    before, after = ([one for one in samples.get(arm) or () if one is not None] for arm in ("baseline", "candidate"))
    return before, after


def _objectives(comparison: Mapping[str, Any], arm: int) -> list[Mapping[str, Any]]:
    return comparison["arms"][arm]["metrics"].get("objectives") or []


def _within_objectives(curve: Mapping[str, Any], comparison: Mapping[str, Any]) -> bool:
    prefix = OBJECTIVES.get(curve["name"])
    own = [one for one in _objectives(comparison, 1) if prefix is not None and one["name"].startswith(prefix)]
    return bool(own) and all(one["met"] for one in own)


def _leans_worse(curve: Mapping[str, Any]) -> bool:
    change = curve["median_change_pct"]
    if change is None:
        return False
    floor = (curve["noise_floor_pct"] or 0) / 100
    margin = 100 * min(WIDEST_MARGIN, max(floor, EQUIVALENCE_MARGIN))
    return bool(change > margin if curve["better"] == "lower" else change < -margin)


def _broken(comparison: Mapping[str, Any]) -> list[Reason]:
    """Objectives that were met and are missed with the step."""
    before = {one["name"]: one for one in _objectives(comparison, 0)}
    broken = [one for one in _objectives(comparison, 1) if one["met"] is False and before[one["name"]]["met"]]
    rows = [{"name": one["name"], "limit": one["limit"], "before": before[one["name"]]["value"], "value": one["value"]}
            for one in broken]  # fmt: skip
    return [{"code": "objective", "objectives": rows}] if rows else []


def _failing(comparison: Mapping[str, Any]) -> list[Reason]:
    """Requests that fail with the step and did not before, unless an objective allows so many."""
    shares = []
    for arm in comparison["arms"]:
        failed, completed = arm["metrics"].get("failed") or 0, arm["metrics"].get("completed") or 0
        shares.append(failed / (failed + completed) if failed else 0.0)
    limit = next((one["limit"] for one in _objectives(comparison, 1) if one["name"] == "error_rate"), 0.0)
    if shares[1] <= max(shares[0], limit):
        return []
    return [{"code": "failing", "share": shares[1], "before": shares[0], "limit": limit}]


def _answers(comparison: Mapping[str, Any], quality: Mapping[str, Any] | None) -> list[Reason]:
    """Without a guard the step should change no answer; a comparison still looks."""
    if quality is not None:
        return []
    worse = [curve for curve in comparison["curves"] if curve["name"] == "quality" and curve["verdict"] == "worse"]
    return [_said("answers", worse)] if worse else []
