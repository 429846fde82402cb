"""Choosing tokens in compiled code: the rows of a step as flat arrays for kernels/cpu/sampling.cpp.

Knows how each row is to be chosen from; nothing of requests. What it can't tell is for core_engine/sampling.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.kernels.cpu.native import Sampling, library
from core_engine.plan import RowSampling
from core_engine.random_stream import PURPOSES
from core_engine.sampling import adjusted_ids, adjusted_scores


def uniforms(samplings: Sequence[RowSampling], positions: Sequence[int]) -> NDArray[np.float64]:
    """`core_engine.sampling.uniform` of each row for purpose "sample"."""
    keys = np.array([(sampling.seed, sampling.sample_index) for sampling in samplings], dtype=np.uint64)
    counters = np.array(positions, dtype=np.uint64)
    numbers = np.empty(len(samplings))
    library().trilemma_uniform(
        ctypes.c_void_p(keys.ctypes.data), ctypes.c_void_p(counters.ctypes.data), ctypes.c_uint64(PURPOSES["sample"]),
        ctypes.c_int64(len(samplings)), ctypes.c_void_p(numbers.ctypes.data),
    )  # fmt: skip
    return numbers


def choose_rows(
    logits: torch.Tensor, places: Sequence[int], samplings: Sequence[RowSampling], numbers: NDArray[np.float64]
) -> list[int | None]:
    """The token of each row, whose logits are at its place and whose draw is numbers[row]; None where it can't be told.

    logits float32 [.., vocab_size] on the CPU, contiguous; no two rows share a place. Runs on torch's
    number of threads. OSError as from library.
    """
    assert logits.dtype is torch.float32 and logits.is_contiguous()
    params = [sampling.params for sampling in samplings]
    starts, ids, scores = _changed(logits, places, samplings)
    real = np.array([(0.0 if p.is_greedy else p.temperature, p.top_p, p.min_p) for p in params]).T.copy()
    whole = np.array([places, [p.top_k for p in params]], dtype=np.int64)
    tokens = np.empty(len(samplings), dtype=np.int64)
    library().trilemma_choose(ctypes.byref(Sampling(
        len(samplings), logits.shape[-1], torch.get_num_threads(), logits.data_ptr(), whole[0].ctypes.data,
        *[row.ctypes.data for row in real], whole[1].ctypes.data, numbers.ctypes.data,
        starts.ctypes.data, ids.ctypes.data, scores.ctypes.data, tokens.ctypes.data,
    )))  # fmt: skip
    return [None if token < 0 else token for token in tokens.tolist()]


def _changed(
    logits: torch.Tensor, places: Sequence[int], samplings: Sequence[RowSampling]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Ids and scores that bias, penalties and bans change, and where each row's begin among them."""
    lengths, ids, scores = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
    table = logits.numpy()
    for place, sampling in zip(places, samplings, strict=True):
        if sampling.is_adjusted:
            ids.append(adjusted_ids(sampling))
            scores.append(adjusted_scores(ids[-1], table[place, ids[-1]], sampling))
            lengths.append(lengths[-1] + len(ids[-1]))
        else:
            lengths.append(lengths[-1])
    return np.array(lengths, dtype=np.int64), np.concatenate(ids), np.concatenate(scores)
