"""A constructed draft: right as often as we want, at a cost that we choose. A measuring instrument, not a form to use.

It is told each answer beforehand and proposes its tokens, each wrong with the probability 1 - alpha. So the speed-up of
any acceptance can be measured on this engine, and the case of a draft that makes serving slower can be reproduced.
Everything it gives is labelled constructed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_engine.random_stream import uniform
from core_engine.speculation.proposer import Ask, Draft


def busy_wait(seconds: float) -> None:
    """Keep this core busy: a sleep would let it slow down or serve others, which a draft's computation does not."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class ConstructedProposer:
    """answers: by request id, all tokens of the sequence, prompt included. draft_s: seconds that each draft takes.

    The same seed makes the same mistakes, other ones in every answer. Behind the end of a known answer it proposes
    token 0.
    """

    needs_hidden = False

    def __init__(
        self,
        answers: Mapping[str, Sequence[int]],
        alpha: float,
        draft_s: float,
        *,
        vocab_size: int,
        seed: int = 0,
        spend: Callable[[float], None] = busy_wait,
    ) -> None:
        self._answers, self._alpha, self._draft_s = answers, alpha, draft_s
        self._vocab_size, self._seed, self._spend = vocab_size, seed, spend
        self._places = {name: place for place, name in enumerate(answers)}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft of full length for each ask. The drafts of a batch are made together, as a model makes them."""
        if self._draft_s and asks:
            self._spend(self._draft_s * max(ask.k for ask in asks))
        return [Draft(tuple(self._token(ask, len(ask.tokens) + place) for place in range(ask.k))) for ask in asks]

    def _token(self, ask: Ask, position: int) -> int:
        answer = self._answers[ask.request_id]
        token = answer[position] if position < len(answer) else 0
        number = uniform(self._seed, position, sample_index=self._places[ask.request_id], purpose="draft")
        return token if number < self._alpha else (token + 1) % self._vocab_size

    def observe(self, rows: Sequence[Any], hidden: Any) -> None:
        """Never called: it looks at no hidden states."""

    def release(self, request_id: str) -> None:
        """It keeps nothing of a sequence."""

    def weights_bytes(self) -> int:
        """It has none."""
        return 0

    def cache_bytes(self) -> int:
        """It has none."""
        return 0
