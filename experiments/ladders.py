"""Round numbers to choose from and to draw axes with: powers of two and the halves between them."""

from __future__ import annotations

from collections.abc import Sequence

LADDER = tuple(sorted(2**power * factor // 2 for power in range(1, 24) for factor in (2, 3)))
MOST_COLUMNS, MOST_ROWS = 15, 14


def lengths_around(seq_len: int, max_position: int) -> tuple[int, ...]:
    """Round lengths from a quarter of `seq_len` up to 32 times it, or to the model's maximum with more below it."""
    top = min(32 * seq_len, max(max_position, seq_len)) if max_position else 32 * seq_len
    below = [rung for rung in LADDER if 16 <= rung <= top]
    return _window(below, seq_len, MOST_COLUMNS, lead=4)


def concurrencies_around(concurrency: int, most: int | None) -> tuple[int, ...]:
    """Round concurrencies from 1 to past what fits, thinned out to the rows there are."""
    every = (1, *LADDER)
    top = max(4 * concurrency, 2 * (most or 0), every[MOST_ROWS - 1])
    rungs = [rung for rung in every if rung <= top]
    if len(rungs) > MOST_ROWS:
        rungs = [rung for rung in rungs if rung & (rung - 1) == 0]
    return _window(rungs, concurrency, MOST_ROWS, lead=MOST_ROWS - 3)


def _window(rungs: Sequence[int], chosen: int, most: int, lead: int) -> tuple[int, ...]:
    """At most `most` rungs with the chosen value among them, `lead` below it where the ladder goes on above."""
    found = sorted({*rungs, chosen})
    place = found.index(chosen)
    first = max(0, min(place - lead, len(found) - most))
    return tuple(found[first : first + most])
