"""Proposers whose acceptance a test decides: they know the answers, or don't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from core_engine.plan import Row
from core_engine.random_stream import uniform
from core_engine.sampling import draw
from core_engine.speculation.proposer import Ask, Draft

Truth = Callable[[Ask], Sequence[int]]  # the whole sequence that a request will become


class KnowingProposer:
    """Proposes what `truth` says comes next; with `wrong`, every position whose number it picks is another token.

    Longer than asked by `excess`, which the engine has to cut.
    """

    needs_hidden = False

    def __init__(
        self, truth: Truth, wrong: Callable[[int], bool] = lambda _: False, *, vocab_size: int, excess: int = 0
    ) -> None:
        self.truth, self.wrong, self.vocab_size, self.excess = truth, wrong, vocab_size, excess
        self.asked: list[tuple[str, int, int]] = []  # request, tokens so far, k
        self.released: list[str] = []

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = []
        for ask in asks:
            at = len(ask.tokens)
            self.asked.append((ask.request_id, at, ask.k))
            right = list(self.truth(ask))[at : at + ask.k + self.excess]
            right += [0] * (ask.k + self.excess - len(right))
            drafts.append(Draft(tuple((t + self.wrong(at + i)) % self.vocab_size for i, t in enumerate(right))))
        return drafts

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        raise AssertionError("hidden states were not asked for")

    def release(self, request_id: str) -> None:
        self.released.append(request_id)

    def weights_bytes(self) -> int:
        return 0

    def cache_bytes(self) -> int:
        return 0


class DrawingProposer(KnowingProposer):
    """Draws each token from a distribution that depends on the token before it, given as rows [vocab_size]."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__(lambda _: (), vocab_size=table.shape[-1])
        self.table = table

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        last, tokens, probs = ask.tokens[-1], [], []
        for i in range(ask.k):
            probs.append(self.table[last])
            number = uniform(
                ask.sampling.seed, len(ask.tokens) + i, sample_index=ask.sampling.sample_index, purpose="draft"
            )
            last = draw(probs[-1].double(), number)
            tokens.append(last)
        return Draft(tuple(tokens), torch.stack(probs))


def every_third(position: int) -> bool:
    """Wrong now and then, so that rows of a batch accept different numbers."""
    return (position * 2654435761) % 97 < 30


def always(position: int) -> bool:
    """Never right, but by chance."""
    return True


def answers(prompts: Sequence[Sequence[int]], completions: Sequence[Any]) -> Truth:
    """The sequences of prompts whose answers are known: found by how they begin."""
    known = [[*prompt, *done.token_ids] for prompt, done in zip(prompts, completions, strict=True)]

    def truth(ask: Ask) -> Sequence[int]:
        return next((one for one in known if one[: len(ask.tokens)] == list(ask.tokens)), ())

    return truth
