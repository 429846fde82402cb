"""SamplingParams: what a caller asks of one request: how to choose tokens, what to report, when to stop."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import InputError


@dataclass(frozen=True)
class SamplingParams:
    """How to choose tokens and when to stop; the order in which these act is documented in core_engine.sampling.

    max_tokens, min_tokens: bounds on the generated tokens; before min_tokens no end token and no stop text ends it.
    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are off. repetition_penalty divides (positive) or multiplies
    (negative) the logits of tokens in prompt and output, 1 is off; presence_penalty and frequency_penalty are
    subtracted for tokens of the output, 0 is off. logit_bias is added, by token id.
    logprobs: natural log-probabilities under the model's own distribution, None for none, 0 for the chosen token alone,
    N for the N likeliest too. n: how many answers to one prompt. seed None takes one derived from the engine's.
    stop: texts that end the answer, excluded from it; stop_token_ids end it too. ignore_eos: the model's own end tokens
    don't. answer_tokens ends the answer after that many tokens as an end token would: it replays a recorded length,
    which, unlike max_tokens, nobody knows beforehand.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    n: int = 1
    stop_token_ids: tuple[int, ...] = ()
    answer_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InputError("max_tokens", self.max_tokens, "a whole number from 1 up")
        if not 0 <= self.temperature <= 100:
            raise InputError("temperature", self.temperature, "a number from 0 to 100")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InputError("seed", self.seed, "a whole number from 0 to 2^63 - 1")
        if any(not text for text in self.stop):
            raise InputError("stop", "", "a text of at least one character")
