"""The quality guard of a step: the same questions under the settings of the start and those with the step.

Always against the start, so that several small losses don't add up unseen. Owns the figure and its rule:

- *Drop*: the mean fall, over all items, of the probability that the model gives the right choice among the choices. It
  is accuracy without its rounding: 0.01 is one answer in a hundred, and pairs of items tell it from far fewer.
- `lost`: the drop's 95 % interval lies above what may be lost; or one slice has lost answers by McNemar's exact test
  (Holm over slices), or SLICE_DROP of that probability by a paired t test (Holm too), so that no mean hides a slice.
- `kept`: the interval lies below what may be lost. Anything else is `undecided`, with the items that it would take.

Scoring asks the model itself, so what stands before it (UNSEEN) changes no score whatever it does to answers: a step
that moves one of those is named in `unseen`, and its verdict says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from core_engine.variables import Value
from experiments.playbook.outcomes import KEPT, LOST, UNDECIDED
from experiments.playbook.trial import changed
from experiments.quality.arms import Progress
from experiments.quality.choices import ItemScore
from experiments.quality.evaluation import evaluate
from experiments.quality.items import Item, default_items
from experiments.quality.kept import Kept
from experiments.quality.slices import ALL, judge_slices, slice_places
from experiments.quality.spec import at_most, changes_outputs
from experiments.rig import Rig
from experiments.statistics import ALPHA, holm, mean_interval

SLICE_DROP = 0.05
# Of what can't change an answer these still decide how it is computed, so both sides have them alike.
BESIDE = ("device", "threads", "kernels", "block_size")
# Change answers before the model is asked, or who is asked.
UNSEEN = ("semantic_cache", "semantic_threshold", "router", "router_small", "router_threshold")
_LABEL = "with the step"


def guard_quality(
    start: Mapping[str, Value],
    after: Mapping[str, Value],
    *,
    most_drop: float,
    limit: int,
    kept: Kept | None,
    rig: Rig | None,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Score at most `limit` of the project's items a slice under both settings and judge; see `judge_quality`, to which
    it adds "unseen": the variables that moved and that no score can show.

    Scores that `kept` has are taken. InputError and CannotRunError as the engine raises them, Cancelled when asked.
    """
    items = at_most(default_items(), limit)
    found = evaluate(
        {_LABEL: answering(after)}, answering(start), items, [], Progress(on_live, should_cancel), kept=kept, rig=rig
    )
    judged = judge_quality(items, found.baseline_scores, found.scores[_LABEL], most_drop)
    return {**judged, "unseen": [name for name in changed(start, after) if name in UNSEEN]}


def answering(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The settings that answers follow from; batches, queues and admission are the evaluation's own."""
    return {name: value for name, value in settings.items() if changes_outputs(name) or name in BESIDE}


def judge_quality(
    items: Sequence[Item], before: Sequence[ItemScore], after: Sequence[ItemScore], most_drop: float
) -> dict[str, Any]:
    """{"verdict","drop","ci95","most_drop","items","items_needed","accuracy","slices","provenance"}.

    drop and its interval are shares of the answers (0.01: one in a hundred); slices are those that were lost, each
    with its drop and the answers lost and gained; items_needed is None where it is decided or more would not decide.
    """
    falls = [right(one) - right(two) for one, two in zip(before, after, strict=True)]
    found = mean_interval(falls)
    drop = fmean(falls)
    low, high = (drop, drop) if found is None else (found.low, found.high)
    slices = _lost_slices(items, before, after, falls)
    if slices or low > most_drop:
        verdict = LOST
    else:
        verdict = KEPT if high <= most_drop and found is not None else UNDECIDED
    return {
        "verdict": verdict,
        "drop": drop,
        "ci95": None if found is None else [low, high],
        "most_drop": most_drop,
        "items": len(items),
        "items_needed": _needed(falls, drop, most_drop) if verdict == UNDECIDED else None,
        "accuracy": {"start": _accuracy(before), "with_step": _accuracy(after)},
        "slices": slices,
        "provenance": "measured",
    }


def right(score: ItemScore) -> float:
    """The probability of the right choice among the choices."""
    top = max(score.logprobs)
    weights = [math.exp(value - top) for value in score.logprobs]
    return weights[score.answer] / sum(weights)


def _accuracy(scores: Sequence[ItemScore]) -> float:
    return sum(score.correct for score in scores) / len(scores)


def _lost_slices(
    items: Sequence[Item], before: Sequence[ItemScore], after: Sequence[ItemScore], falls: Sequence[float]
) -> list[dict[str, Any]]:
    """Slices that lost answers, or SLICE_DROP of the right answers' probability."""
    rows = {row.slice: row for row in judge_slices(items, before, {_LABEL: after}) if row.slice != ALL}
    places = {name: own for name, own in slice_places(items).items() if name in rows}
    each = {name: mean_interval([falls[place] for place in own]) for name, own in places.items()}
    adjusted = dict(zip(each, holm([1.0 if one is None else one.p for one in each.values()]), strict=True))
    lost = []
    for name, row in rows.items():
        one = each[name]
        by_answers = row.scored_by == "accuracy" and row.verdict == "worse"
        by_share = one is not None and one.mean > SLICE_DROP and adjusted[name] < ALPHA
        if by_answers or by_share:
            drop = fmean(falls[place] for place in places[name])
            lost.append({"slice": name, "drop": drop, "lost": row.lost, "gained": row.gained, "items": row.items})
    return lost


def _needed(falls: Sequence[float], drop: float, most_drop: float) -> int | None:
    """Items at which the interval would leave the limit on the side where the mean is; None when it is on it."""
    if len(falls) < 2 or drop == most_drop:
        return None
    return math.ceil((1.96 * stdev(falls) / abs(most_drop - drop)) ** 2)
