"""How often a semantic cache answers, and how often wrongly, over the similarity threshold, on written pairs.

Owns the figures, no model. Three ways to ask, since they answer different questions. `pairs`: only the first question
of a pair is stored when its second comes, so a near miss can only be told apart or not. `crowd`: the first questions of
all pairs are stored when each second one comes, as in use; then any answer but the pair's own is wrong, whatever it was
written for. `stranger`: as the crowd, but the question's own pair was never asked; then every answer is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_engine.answer_cache.embedder import Embedder
from core_engine.answer_cache.gate import Question, closeness, difference, read_question
from experiments.caching.pairs import Pair, read_pairs
from experiments.proportions import wilson_interval

THRESHOLDS = tuple(round(0.5 + 0.01 * step, 2) for step in range(51))
MOST_WRONG = 1 / 150  # of near misses: more than that is no cache to use
MOST_STRANGERS = 0.02  # of questions that nobody has asked


@dataclass(frozen=True)
class Judged:
    """One language's pairs, embedded and read. similarity: cosine of the two questions of each pair; close: what it is
    worth in their language; apart: what the gate found different, None where nothing. crowd: (close, right) of the
    nearest stored question for each second one, -1 where the gate refuses it; stranger: the same closeness where the
    own pair is not stored."""

    similarity: dict[str, np.ndarray]
    close: dict[str, np.ndarray]
    apart: dict[str, list[str | None]]
    crowd: dict[str, list[tuple[float, bool]]]
    stranger: list[float]


def judge_pairs(encoder: Embedder, paraphrases: Sequence[Pair], near_misses: Sequence[Pair]) -> Judged:
    """Embed all questions once and ask the gate wherever a cache would."""
    by_kind = {"paraphrase": list(paraphrases), "near_miss": list(near_misses)}
    every = [*by_kind["paraphrase"], *by_kind["near_miss"]]
    first, second = (encoder.embed_all([getattr(pair, side) for pair in every]) for side in "ab")
    asked = [(read_question(pair.a), read_question(pair.b)) for pair in every]
    own = np.einsum("ij,ij->i", first, second)
    close = np.array([closeness(float(s), two, one) for s, (one, two) in zip(own, asked, strict=True)])
    apart = [difference(two, one) for one, two in asked]
    split = len(by_kind["paraphrase"])
    similarity = second @ first.T
    crowd = [(s, hit == place and place < split) for place, (hit, s) in enumerate(_nearest(similarity, asked))]
    np.fill_diagonal(similarity, -1.0)
    strangers = [s for _, s in _nearest(similarity, asked)]
    parts = {"paraphrase": slice(0, split), "near_miss": slice(split, None)}
    return Judged(
        {kind: own[part] for kind, part in parts.items()},
        {kind: close[part] for kind, part in parts.items()},
        {kind: apart[part] for kind, part in parts.items()},
        {kind: crowd[part] for kind, part in parts.items()},
        strangers,
    )


def _nearest(similarity: np.ndarray, asked: Sequence[tuple[Question, Question]]) -> list[tuple[int, float]]:
    """(place, closeness) of the stored question nearest to each that is asked; -1 for both where the gate refuses."""
    found = []
    for place, row in enumerate(similarity):
        hit = int(row.argmax())
        two, one = asked[place][1], asked[hit][0]
        passes = difference(two, one) is None
        found.append((hit, closeness(float(row[hit]), two, one)) if passes else (-1, -1.0))
    return found


def share(count: int, total: int) -> dict[str, Any]:
    """{"count","total","rate","low","high"}: a share with its 95 % Wilson interval."""
    low, high = wilson_interval(count, total)
    return {"count": count, "total": total, "rate": count / total, "low": low, "high": high}


def at_threshold(judged: Judged, threshold: float) -> dict[str, Any]:
    """Shares at one threshold.

    hit: paraphrases that get the answer of their pair; wrong: near misses that do. *_ungated: the same without the
    gate. crowd_hit: paraphrases that get their own answer among all; crowd_wrong: questions of both kinds that get
    another one; stranger_wrong: those that get any though nobody has asked the like.
    """
    near, same = judged.similarity["near_miss"], judged.similarity["paraphrase"]
    hits = {
        kind: sum(reason is None for reason, close in zip(apart, judged.close[kind], strict=True) if close >= threshold)
        for kind, apart in judged.apart.items()
    }
    crowd = {kind: [(s >= threshold, right) for s, right in judged.crowd[kind]] for kind in judged.crowd}
    every = [*crowd["paraphrase"], *crowd["near_miss"]]
    return {
        "threshold": threshold,
        "hit": share(hits["paraphrase"], len(same)),
        "wrong": share(hits["near_miss"], len(near)),
        "hit_ungated": share(int((same >= threshold).sum()), len(same)),
        "wrong_ungated": share(int((near >= threshold).sum()), len(near)),
        "crowd_hit": share(sum(hit and right for hit, right in crowd["paraphrase"]), len(same)),
        "crowd_wrong": share(sum(hit and not right for hit, right in every), len(every)),
        "stranger_wrong": share(sum(similarity >= threshold for similarity in judged.stranger), len(every)),
    }


def best_threshold(judged: Sequence[Judged]) -> float | None:
    """The lowest threshold from which on no language has more wrong answers than allowed: of near misses MOST_WRONG, of
    strangers MOST_STRANGERS. None when there is none. Only to be asked about pairs that nothing is reported on."""
    good = None
    for threshold in reversed(THRESHOLDS):
        rows = [at_threshold(one, threshold) for one in judged]
        if any(row["wrong"]["rate"] > MOST_WRONG or row["stranger_wrong"]["rate"] > MOST_STRANGERS for row in rows):
            break
        good = threshold
    return good


def evaluate(encoder: Embedder, language: str, half: str, threshold: float) -> dict[str, Any]:
    """The figures of one language's pairs, as JSON: the whole curve, the chosen point, and what the gate found."""
    paraphrases, near_misses = (read_pairs(language, kind, half) for kind in ("paraphrase", "near_miss"))
    judged = judge_pairs(encoder, paraphrases, near_misses)
    return {
        "language": language,
        "half": half,
        "paraphrases": len(paraphrases),
        "near_misses": len(near_misses),
        "chosen": at_threshold(judged, threshold),
        "curve": [at_threshold(judged, each) for each in THRESHOLDS],
        "apart": {kind: _counted(reasons) for kind, reasons in judged.apart.items()},
        "provenance": "measured",
    }


def _counted(reasons: Sequence[str | None]) -> dict[str, int]:
    return dict(Counter(reason for reason in reasons if reason is not None).most_common())
