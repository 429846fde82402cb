"""How every proposer chooses its next token: the argmax for greedy asks, else a draw whose distribution is returned.

Owns the way from logits over a shortlist to ids and distributions over the vocabulary. Knows no draft model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core_engine.plan import RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import draw, process_logits, processed_probs
from core_engine.speculation.proposer import Ask, Draft


class Shortlist:
    """The ids that a draft proposes, ascending, in a vocabulary of `vocab_size`."""

    def __init__(self, ids: torch.Tensor, vocab_size: int) -> None:
        self.ids, self.vocab_size = ids.long(), vocab_size

    def spread(self, values: torch.Tensor, elsewhere: float) -> torch.Tensor:
        """values [ids] as [vocab_size], with `elsewhere` at all other ids."""
        whole = values.new_full((self.vocab_size,), elsewhere)
        whole[self.ids] = values
        return whole


class Choice:
    """The drafts of one ask as they are chosen, one after another."""

    def __init__(self, ask: Ask, shortlist: Shortlist) -> None:
        self._ask, self._shortlist = ask, shortlist
        self.tokens: list[int] = []
        self._probs: list[torch.Tensor] = []

    @property
    def wants_more(self) -> bool:
        """Whether fewer than k are chosen."""
        return len(self.tokens) < self._ask.k

    def add(self, logits: torch.Tensor, best: int) -> int:
        """Choose from logits [ids of the shortlist], whose largest is at `best`, and return the token's id."""
        ids, sampling = self._shortlist.ids, self._sampling()
        if sampling.is_plain_greedy:
            token = int(ids[best])
        elif sampling.params.is_greedy:
            token = int(process_logits(self._whole(logits), sampling).argmax())
        else:
            token = self._draw(logits, sampling)
        self.tokens.append(token)
        return token

    def draft(self) -> Draft:
        """What was chosen."""
        return Draft(tuple(self.tokens), torch.stack(self._probs) if self._probs else None)

    def _draw(self, logits: torch.Tensor, sampling: RowSampling) -> int:
        if sampling.is_adjusted:  # penalties and bias speak of ids of the vocabulary
            probs = processed_probs(self._whole(logits), sampling)
        else:
            probs = self._shortlist.spread(processed_probs(logits.cpu(), sampling), 0.0)
        self._probs.append(probs)
        position = len(self._ask.tokens) + len(self.tokens)
        number = uniform(sampling.seed, position, sample_index=sampling.sample_index, purpose="draft")
        return draw(probs, number)

    def _whole(self, logits: torch.Tensor) -> torch.Tensor:
        return self._shortlist.spread(logits.cpu().double(), -torch.inf)

    def _sampling(self) -> RowSampling:
        """How the next one is chosen."""
        sampling = self._ask.sampling
        return sampling.after(tuple(self.tokens)) if self.tokens else sampling


def choose(logits: torch.Tensor, choices: Sequence[Choice]) -> list[int]:
    """The next token of each choice from logits [choices, ids of the shortlist]."""
    best = logits.argmax(-1).tolist()
    return [choice.add(row, place) for choice, row, place in zip(choices, logits, best, strict=True)]


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return place
    return min(len(one), len(other))
