"""Whole next-token distributions of a text, a step at a time, so that memory stays that of one step.

Knows the engine by its scoring alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core_engine.engine import Engine


def distributions(engine: Engine, token_ids: Sequence[int], start: int) -> Iterator[tuple[int, Any]]:
    """Yield (place, log-probabilities) of the tokens from `start` on, in order and without gaps.

    The tensor is float64 [n, vocab_size], natural logarithms: row i is the distribution that token_ids[place + i] is
    drawn from. Nothing else should run in the engine meanwhile: a request alone is never preempted, so that no row
    comes twice. Closing the iterator drops the request. InputError as `Engine.score`.
    """
    found: list[tuple[int, Any]] = []
    request_id = engine.add_score(token_ids, start, watch=lambda place, rows: found.append((place, rows)))
    done = False
    try:
        while not done:
            engine.step()
            done = engine.take_scores(request_id) is not None
            while found:
                yield found.pop(0)
    finally:
        if not done:
            engine.abort(request_id)
