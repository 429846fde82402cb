"""Repetitive traffic: questions that come again, to the letter or otherwise.

Drawn from the question pairs that judge the semantic cache, of the half on which nothing was fixed. Of the requests a
part asks something new; the others come back to an earlier pair, half of them with its first question again, half with
its second: the same in other words, or a near miss whose answer is another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.caching.pairs import Pair, read_pairs

LANGUAGES = {"questions": "en", "questions-zh": "zh"}  # by what a workload calls its text
REPEATED = 0.6  # of the requests


@dataclass(frozen=True)
class Ask:
    """A question; asks with one key have one right answer."""

    question: str
    key: str


def draw_asks(language: str, count: int, rng: np.random.Generator) -> list[Ask]:
    """`count` questions in order, about half of the new ones with a paraphrase to come and half with a near miss."""
    new = [(pair, kind) for kind in ("paraphrase", "near_miss") for pair in read_pairs(language, kind, "held")]
    to_come = [new[place] for place in rng.permutation(len(new))]
    asked: list[tuple[Pair, str]] = []
    asks = []
    for _ in range(count):
        if asked and (not to_come or rng.random() < REPEATED):
            pair, kind = asked[int(rng.integers(len(asked)))]
            asks.append(_ask(pair, kind, second=bool(rng.random() < 0.5)))
        else:
            asked.append(to_come.pop())
            asks.append(_ask(*asked[-1], second=False))
    return asks


def _ask(pair: Pair, kind: str, *, second: bool) -> Ask:
    other_answer = second and kind == "near_miss"
    return Ask(pair.b if second else pair.a, f"{pair.id}.b" if other_answer else pair.id)
