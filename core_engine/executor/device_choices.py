"""Tokens chosen where the logits are: on the device, nothing is waited for. What it can't choose is for choices.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.executor.choices import Choice
from core_engine.kernels.cpu import sampling as compiled
from core_engine.kernels.cpu.native import library
from core_engine.kernels.triton.sampling import sample
from core_engine.plan import Row, RowSampling
from core_engine.random_stream import uniform

Uniforms = Callable[[Sequence[RowSampling], Sequence[int]], NDArray[np.float64]]


def on_device(rows: Sequence[Row]) -> bool:
    """Whether every token that a step gives can be chosen on the device: no penalties, biases or bans, nothing drawn
    against a draft's distribution, no log-probabilities, no scores."""
    return all(map(_simple, rows))


def _simple(row: Row) -> bool:
    sampling = row.sampling
    if row.targets:
        return False
    if sampling is None:
        return True
    return not sampling.is_adjusted and row.draft_probs is None and sampling.params.logprobs is None


def uniforms_here() -> Uniforms:
    """How random numbers are made: in compiled code where it can be had, else one by one."""
    try:
        library()
    except OSError:
        return lambda samplings, positions: np.array(
            [uniform(s.seed, at, sample_index=s.sample_index) for s, at in zip(samplings, positions, strict=True)]
        )
    return compiled.uniforms


def choose_on_device(logits: torch.Tensor, choices: Sequence[Choice], uniforms: Uniforms) -> torch.Tensor:
    """int32 [len(logits)] on the device: the token of each choice at its place, for every row of logits.

    logits float32 [rows, vocab_size]; choices name every row once. Numbers are made and sent, nothing is awaited.
    """
    if all(choice.sampling.params.is_greedy for choice in choices):
        return logits.argmax(dim=-1).int()
    choices = sorted(choices, key=lambda choice: choice.place)
    samplings = [choice.sampling for choice in choices]
    params = [sampling.params for sampling in samplings]
    numbers = np.array(
        [
            [0.0 if p.is_greedy else p.temperature for p in params],
            [p.top_p for p in params],
            [p.min_p for p in params],
            uniforms(samplings, [choice.position for choice in choices]),
        ]
    )
    # An even number of columns: each row begins at a multiple of 16 bytes, and one kernel serves every batch.
    padded = np.pad(numbers, ((0, 0), (0, len(choices) % 2)))
    there = torch.from_numpy(padded).to(logits.device, non_blocking=True)
    temperature, top_p, min_p, number = there[:, : len(choices)]
    top_k = torch.from_numpy(np.array([p.top_k for p in params], dtype=np.int32)).to(logits.device, non_blocking=True)
    tokens = torch.empty(len(choices), dtype=torch.int32, device=logits.device)
    sample(logits, temperature, top_k, top_p, min_p, number, tokens)
    return tokens
