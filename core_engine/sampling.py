"""Choosing the next token from logits, and the one counter-based random stream behind it.

A number is a pure function of (request seed, sample index, position, purpose): never one number for two purposes, and
never dependent on who shares the batch, on chunking or on preemption.
"""

from __future__ import annotations

import numpy as np
import torch

PURPOSES = {"sample": 0, "draft": 1, "accept": 2, "residual": 3}


def uniform(seed: int, position: int, *, sample_index: int = 0, purpose: str = "sample") -> float:
    """A uniform number in [0, 1) from Philox keyed by the request and counted by position and purpose."""
    generator = np.random.Philox(key=[seed, sample_index], counter=[0, position, PURPOSES[purpose], 0])
    return float(np.random.Generator(generator).random())


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softmax of logits / temperature in float64. logits [vocab_size]; temperature above 0."""
    return torch.softmax(logits.double() / temperature, dim=-1)


def choose_token(logits: torch.Tensor, temperature: float, seed: int, position: int) -> int:
    """The next token id. logits [vocab_size]; `position` is the index the token will have in its sequence.

    Greedy takes the lowest id among equal maxima; sampling inverts the cumulative distribution at one uniform number.
    """
    if temperature == 0:
        return int(torch.argmax(logits))
    cumulative = torch.cumsum(probabilities(logits, temperature), dim=-1)
    threshold = uniform(seed, position) * float(cumulative[-1])
    index = int(
        torch.searchsorted(
            cumulative, torch.tensor(threshold, dtype=cumulative.dtype, device=logits.device), right=True
        )
    )
    return min(index, logits.shape[-1] - 1)
