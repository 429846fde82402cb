"""What the engine gives back: the output of a step, the completion of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from core_engine.plan import TokenLogprobs


class Output(NamedTuple):
    """What one step brought one request. sample_index counts the samples of one prompt (n > 1).

    A named tuple: one is made for every token, and a frozen dataclass takes three times as long.
    """

    request_id: str
    token_ids: list[int]
    text: str
    finished: bool
    finish_reason: str | None
    sample_index: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True)
class Completion:
    """A finished request. token_ids are all generated ones, the one that ended it included.

    finish_reason: "stop" (end token or stop text), "length" (max_tokens, the model's positions or the KV pool) or
    "abort". logprobs, one a token, is empty unless asked for.
    """

    request_id: str
    text: str
    token_ids: list[int]
    finish_reason: str
    prompt_tokens: int
    sample_index: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
