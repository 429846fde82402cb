"""From sequences to batches: pieces of a fixed length chosen by (seed, step), so that a resumed run sees the same ones.

Owns the teacher's likeliest ids, computed once for all text. Knows no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from core_engine.speculation.training.corpus import Sequences

LIKELIEST = 24  # ids of the teacher that a draft learns from at each position
ROWS = 1024


@dataclass(frozen=True)
class Teacher:
    """What the target predicts after each token, over the ids of a shortlist.

    ids int64 [num_tokens, LIKELIEST] are places in the shortlist, probs float32 likewise and sum to 1.
    """

    ids: torch.Tensor
    probs: torch.Tensor

    @classmethod
    def of(cls, hidden: torch.Tensor, head: torch.Tensor, report: Callable[[str], None]) -> Teacher:
        """From hidden [num_tokens, hidden_size] and the head's rows of the shortlist [ids, hidden_size]."""
        report(f"What the target predicts at {len(hidden):,} tokens")
        ids, probs = [], []
        with torch.inference_mode():
            for part in hidden.split(ROWS):
                best = (part.float() @ head.t()).topk(min(LIKELIEST, len(head)), dim=-1)
                ids.append(best.indices.to(torch.int32))
                probs.append(torch.softmax(best.values, -1).half())
        return cls(torch.cat(ids), torch.cat(probs))


@dataclass(frozen=True)
class Batch:
    """Pieces of sequences, filled up at their end. places int64 [batch, length] in the flat text; real likewise."""

    places: torch.Tensor
    real: torch.Tensor


def pieces(text: Sequences, seed: int, step: int, batch: int, length: int) -> Batch:
    """`batch` sequences chosen at random, each a random piece of at most `length` tokens."""
    chance = np.random.default_rng([seed, step])
    places = torch.zeros(batch, length, dtype=torch.int64)
    real = torch.zeros(batch, length, dtype=torch.bool)
    for row, index in enumerate(chance.integers(len(text), size=batch)):
        span = text.span(int(index))
        size = min(length, span.stop - span.start)
        first = span.start + int(chance.integers(span.stop - span.start - size + 1))
        places[row, :size] = torch.arange(first, first + size)
        real[row, :size] = True
    used = int(real.any(0).sum())
    return Batch(places[:, :used], real[:, :used])


def distilled(features: torch.Tensor, head: torch.Tensor, teacher: Teacher, places: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of softmax(features head^T) against the teacher's likeliest ids at `places` [num_tokens]."""
    logits = features @ head.t()
    chosen = logits.gather(-1, teacher.ids[places].long())
    return (logits.logsumexp(-1) - (chosen * teacher.probs[places].float()).sum(-1)).mean()
