"""The same tokens as sampling.choose_token, sooner: what weighs little is weighed in float32 or not at all.

A distribution's weight lies in few tokens. Those within exp(-12) of the likeliest, the head, are weighed in float64.
All others, the tail, count only where no filter has cut them off, in float32, where a weight is off by at most
TAIL_ERROR of itself. So every sum of weights is known to within a bound, and each decision is one of comparing a sum
with a number: further apart than the bound, float64 throughout would decide the same. Where they are not,
`shortlist_token` says that it can't tell, and the row is chosen by sampling.choose_token. One row after another, so
that a row stays in a core's cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core_engine.sampling_params import SamplingParams

Ids = NDArray[np.intp]
Weights = NDArray[np.float64]

# Logarithm of the least weight in the head, the likeliest token's being 1.
HEAD = -12.0
# Three float32 roundings of an exponent that matters (above -40: all below weigh less than 1e-11 together) and 3 ulp of
# the exponential.
TAIL_ERROR = 3 * 40 * 2**-24 + 3 * 2**-23
# Rounding of float64 weights and of their sums over up to a million ids, of the sum.
SUM_ERROR = 1e-9
# Weights down to which the head is ranked for top_p until there is mass enough: most distributions need few tokens.
RANKED = (1e-2, 1e-4, 0.0)
# Tokens whose weights are summed together before the place of a draw is looked for.
BLOCK = 256


@dataclass(frozen=True)
class _Row:
    """scores [vocab_size] rank the ids; exponents float32 [vocab_size], 0 at the likeliest; head: ids, ascending."""

    scores: NDArray[np.floating]
    temperature: float
    highest: np.floating
    exponents: NDArray[np.float32]
    head: Ids

    def weights_of(self, ids: Ids) -> Weights:
        """Exact weights of some ids."""
        return np.exp((self.scores[ids].astype(np.float64) - np.float64(self.highest)) / self.temperature)

    def all_weights(self) -> tuple[Weights, float]:
        """Weights of all ids, exact in the head, and the largest error of any sum of them."""
        weights = np.exp(self.exponents).astype(np.float64)
        weights[self.head] = 0
        tail = float(weights.sum())
        exact = self.weights_of(self.head)
        weights[self.head] = exact
        return weights, TAIL_ERROR * tail + SUM_ERROR * (tail + float(exact.sum()))


def shortlist_token(scores: NDArray[np.floating], params: SamplingParams, number: float) -> int | None:
    """The id that `number`, uniform in [0, 1), draws; None where it can't be told without the whole in float64.

    scores [vocab_size], float32 or float64, after bias, penalties and bans, before temperature; params not greedy.
    """
    highest = scores.max()
    if not np.isfinite(highest) or not number:
        return None
    with np.errstate(over="ignore"):  # to -inf, which weighs nothing
        exponents = (scores - highest).astype(np.float32, copy=False)
        exponents *= np.float32(1 / params.temperature)
    row = _Row(scores, params.temperature, highest, exponents, np.flatnonzero(exponents > HEAD))
    if not params.min_p and not 0 < params.top_k < len(scores) and params.top_p == 1:
        return _draw_from_all(row, number)
    ids = _kept(row, params)
    if ids is None:
        return None
    weights = row.weights_of(ids)
    total = float(weights.sum())
    place = _place(weights, number * total, SUM_ERROR * total)
    return None if place is None else int(ids[place])


def _kept(row: _Row, params: SamplingParams) -> Ids | None:
    """Ids that min_p, top_k and top_p leave, ascending; None where that is not clear."""
    ids: Ids | None = None
    if params.min_p:
        ids = _by_min_p(row, params.min_p)
        if ids is None:
            return None
    if 0 < params.top_k < (len(row.scores) if ids is None else len(ids)):
        ids = _by_top_k(row, params.top_k, ids)
    return _by_top_p(row, params.top_p, ids) if params.top_p < 1 else ids


def _by_min_p(row: _Row, min_p: float) -> Ids | None:
    weights = row.weights_of(row.head)
    unclear = np.abs(weights - min_p) <= SUM_ERROR * min_p
    return None if min_p < 2 * np.exp(HEAD) or unclear.any() else row.head[weights > min_p]


def _by_top_k(row: _Row, top_k: int, ids: Ids | None) -> Ids:
    """By the scores themselves, so it is exact. Equal scores are together in the head or out of it."""
    if ids is None and top_k <= len(row.head):
        ids = row.head
    scores = row.scores if ids is None else row.scores[ids]
    place = len(scores) - top_k
    high = np.flatnonzero(scores >= np.partition(scores, place)[place])
    return high if ids is None else ids[high]


def _by_top_p(row: _Row, top_p: float, ids: Ids | None) -> Ids | None:
    """The fewest likeliest ids that have the mass, unless the sum or the order is unclear at the last of them."""
    candidates = row.head if ids is None else ids
    weights = row.weights_of(candidates)
    if ids is None:
        everything, error = row.all_weights()
        mass = top_p * float(everything.sum())
    else:
        mass = top_p * float(weights.sum())
        error = SUM_ERROR * mass
    for least in RANKED:
        part = np.flatnonzero(weights > least)
        if float(weights[part].sum()) > mass + error:
            break
    candidates, weights = candidates[part], weights[part]
    ranking = np.argsort(-weights)
    ranked = np.append(weights[ranking], least)
    last = _place(ranked[:-1], mass, error)
    if last is None or ranked[last] - ranked[last + 1] <= SUM_ERROR * ranked[last]:
        return None
    return np.sort(candidates[ranking[: last + 1]])


def _draw_from_all(row: _Row, number: float) -> int | None:
    """By sums of blocks first: a running sum over all ids would take longer than weighing them."""
    weights, error = row.all_weights()
    starts = np.arange(0, len(weights), BLOCK)
    sums = np.cumsum(np.add.reduceat(weights, starts))
    goal = number * float(sums[-1])
    block = min(int(np.searchsorted(sums, goal, side="right")), len(starts) - 1)
    before = float(sums[block - 1]) if block else 0.0
    place = _place(weights[starts[block] : starts[block] + BLOCK], goal, error, before)
    return None if place is None else int(starts[block]) + place


def _place(weights: Weights, goal: float, error: float, before: float = 0.0) -> int | None:
    """Where the running sum of `before` and `weights` passes `goal`, above 0; None nearer to an edge than `error`."""
    sums = np.cumsum(weights) + before
    place = int(np.searchsorted(sums, goal, side="right"))
    if place == len(sums) or not sums[place] - goal > error:
        return None
    start = float(sums[place - 1]) if place else before
    return place if not start or goal - start > error else None
