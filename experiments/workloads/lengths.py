"""Token lengths drawn for a workload."""

from __future__ import annotations

import math

import numpy as np


def log_uniform_lengths(low: int, high: int, count: int, rng: np.random.Generator) -> list[int]:
    """`count` lengths between `low` and `high` tokens, both included, log-uniform: many short, few long, random order.

    Stratified: one draw from each of `count` equal parts of the log range. Plain draws of 24 lengths from 8 to 256 vary
    by about a quarter in their sum from seed to seed; these keep the amount of work, and the spread, nearly the same.
    """
    if not 1 <= low <= high:
        raise ValueError(f"need 1 <= low <= high, got {low} and {high}")
    if low == high:
        return [low] * count
    position = (np.arange(count) + rng.random(count)) / count
    rng.shuffle(position)
    # Half a token is added on both sides, so that the end values are as likely as their neighbours.
    start, stop = math.log(low - 0.5), math.log(high + 0.5)
    lengths = np.rint(np.exp(start + position * (stop - start)))
    return [int(n) for n in np.clip(lengths, low, high)]


def long_tailed_lengths(
    body: tuple[int, int], tail: tuple[int, int], tail_share: float, count: int, rng: np.random.Generator
) -> list[int]:
    """`count` lengths, log-uniform in `body`, of which `tail_share` (at least one) are log-uniform in `tail` instead.

    Ranges are inclusive, in tokens. The share is exact up to rounding, so that every seed has its long answers.
    """
    num_tail = min(count, max(1, round(tail_share * count)))
    lengths = log_uniform_lengths(*body, count, rng)
    for place, length in zip(
        rng.choice(count, size=num_tail, replace=False), log_uniform_lengths(*tail, num_tail, rng), strict=True
    ):
        lengths[int(place)] = length
    return lengths
