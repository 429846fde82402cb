"""The tokens that rows of logits give, many at a time: by argmax, compiled code, numpy or the definition.

Knows logits and how a token is to be chosen; no requests, no drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.kernels.cpu.sampling import choose_rows, uniforms
from core_engine.plan import RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import adjust_logits, choose_token, draw, processed_probs
from core_engine.shortlist import shortlist_token


@dataclass(frozen=True)
class Choice:
    """A token to be chosen: the row of logits, how, and where the token will stand in its sequence."""

    place: int
    sampling: RowSampling
    position: int


def choose(choices: Sequence[Choice], logits: torch.Tensor, best: NDArray[np.int32] | None) -> dict[int, int]:
    """The token of each choice, by its place. logits [rows, vocab_size]; no two choices share a place.

    best [rows]: the lowest id of each largest logit, where whoever computed them knows, and so has code to choose too.
    """
    greedy = [choice.place for choice in choices if choice.sampling.is_plain_greedy]
    found = _largest(logits, greedy) if best is None else best[greedy].tolist()
    tokens: dict[int, int] = dict(zip(greedy, found, strict=True))
    others = [choice for choice in choices if not choice.sampling.is_plain_greedy]
    if not others:
        return tokens
    if best is not None:
        return tokens | _choose_compiled(logits, others)
    logits = logits.cpu()
    return tokens | {choice.place: _choose_one(logits[choice.place], choice) for choice in others}


def _choose_compiled(logits: torch.Tensor, choices: Sequence[Choice]) -> dict[int, int]:
    """What `choose_token` gives at each place, sooner: all of them in one call."""
    samplings = [choice.sampling for choice in choices]
    numbers = uniforms(samplings, [choice.position for choice in choices])
    found = choose_rows(logits, [choice.place for choice in choices], samplings, numbers)
    return {
        choice.place: choose_token(logits[choice.place], choice.sampling, choice.position) if token is None else token
        for choice, token in zip(choices, found, strict=True)
    }


def _largest(logits: torch.Tensor, places: list[int]) -> list[int]:
    """The lowest id of the largest logit at each place. numpy takes 5 us for 49,152 ids where torch takes 200."""
    if not places:
        return []
    taken = logits if len(places) == len(logits) else logits[torch.tensor(places, device=logits.device)]
    best: list[int] = (taken.numpy().argmax(axis=-1) if taken.is_cpu else taken.argmax(dim=-1)).tolist()
    return best


def _choose_one(logits: torch.Tensor, choice: Choice) -> int:
    """What `choose_token` gives, sooner. logits [vocab_size] on the CPU."""
    sampling = choice.sampling
    scores = (adjust_logits(logits, sampling) if sampling.is_adjusted else logits).numpy()
    if sampling.params.is_greedy:
        return int(scores.argmax())
    number = uniform(sampling.seed, choice.position, sample_index=sampling.sample_index)
    token = shortlist_token(scores, sampling.params, number)
    return draw(processed_probs(logits, sampling), number) if token is None else token
