"""The exact tier's key: everything that an answer follows from."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from core_engine.sampling_params import SamplingParams

ExactKey = tuple[str, str, SamplingParams, bytes]


def is_repeatable(params: SamplingParams) -> bool:
    """Whether the same request has one answer: it is greedy, or draws with a seed of its own. Several samples of one
    prompt (n) are left out: each has a stream of random numbers of its own."""
    return params.n == 1 and (params.is_greedy or params.seed is not None)


def exact_key(space: str, data_version: str, params: SamplingParams, ids: Sequence[int]) -> ExactKey:
    """Equal for two requests only if everything is; the ids themselves are in it, so no two prompts collide."""
    return space, data_version, settled(params), array("q", ids).tobytes()


def key_bytes(key: ExactKey) -> int:
    """About what the key takes: the prompt's ids, 8 bytes each, and names that many keys share."""
    return len(key[3])


def settled(params: SamplingParams) -> SamplingParams:
    """The parameters without a seed that has no effect."""
    return replace(params, seed=None) if params.is_greedy else params
