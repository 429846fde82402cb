"""SamplingParams: what a caller asks of one request: how to choose tokens, what to report, when to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ledger.errors import InputError

# A temperature below this one is greedy, as in vLLM: dividing by it would leave one token anyway.
GREEDY_BELOW = 1e-5
# Every token of a request is held against its stops, and all values of a batch go into arrays of 32 or 64 bits: one
# request must neither slow down nor break the steps of others.
MOST_STOPS, LONGEST_STOP, MOST_STOP_IDS = 64, 4096, 4096
MOST_TOP_K, MOST_TOKENS = 2**31 - 1, 2**53


@dataclass(frozen=True)
class SamplingParams:
    """How to choose tokens and when to stop; the order in which these act is documented in core_engine.sampling.

    max_tokens, min_tokens: bounds on the generated tokens; before min_tokens no end token and no stop text ends it.
    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are off. repetition_penalty divides (positive) or multiplies
    (negative) the logits of tokens in prompt and output, 1 is off; presence_penalty and frequency_penalty are
    subtracted for tokens of the output, 0 is off. logit_bias is added, by token id; a dict is accepted.
    logprobs: natural log-probabilities under the model's own distribution, None for none, 0 for the chosen token alone,
    N for the N likeliest too. n: how many answers to one prompt. seed None takes one derived from the engine's.
    stop: texts that end the answer, excluded from it; stop_token_ids end it too. ignore_eos: the model's own end tokens
    don't. answer_tokens ends the answer after that many tokens as an end token would: it replays a recorded length,
    which, unlike max_tokens, nobody knows beforehand.

    Every field is checked and brought to its type here; InputError names the field, the value and what is accepted.
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
        checked = {
            "max_tokens": _whole("max_tokens", self.max_tokens, 1),
            "temperature": _number("temperature", self.temperature, 0, 100),
            "stop": _texts("stop", self.stop),
            "seed": self.seed if self.seed is None else _whole("seed", self.seed, 0, 2**63 - 1, "2^63 - 1"),
            "ignore_eos": _flag("ignore_eos", self.ignore_eos),
            "min_tokens": _whole("min_tokens", self.min_tokens, 0),
            "top_k": _whole("top_k", self.top_k, 0, MOST_TOP_K),
            "top_p": _number("top_p", self.top_p, 0, 1, above=True),
            "min_p": _number("min_p", self.min_p, 0, 1),
            "repetition_penalty": _number("repetition_penalty", self.repetition_penalty, 0.01, 100),
            "presence_penalty": _number("presence_penalty", self.presence_penalty, -2, 2),
            "frequency_penalty": _number("frequency_penalty", self.frequency_penalty, -2, 2),
            "logit_bias": _bias("logit_bias", self.logit_bias),
            "logprobs": self.logprobs if self.logprobs is None else _whole("logprobs", self.logprobs, 0, 20),
            "n": _whole("n", self.n, 1, 128),
            "stop_token_ids": _ids("stop_token_ids", self.stop_token_ids),
            "answer_tokens": self.answer_tokens
            if self.answer_tokens is None
            else _whole("answer_tokens", self.answer_tokens, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.min_tokens > self.max_tokens:
            raise InputError("min_tokens", self.min_tokens, f"at most max_tokens={self.max_tokens}")
        if self.n > 1 and self.is_greedy:
            raise InputError("n", self.n, "1 with temperature 0, where all answers would be the same")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken instead of a drawn one."""
        return self.temperature < GREEDY_BELOW

    @property
    def needs_history(self) -> bool:
        """Whether a penalty is on, so that choosing needs the tokens so far."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def check_vocabulary(self, vocab_size: int) -> None:
        """InputError when logit_bias or stop_token_ids name an id that the model does not have."""
        for name, ids in (
            ("logit_bias", [token for token, _ in self.logit_bias]),
            ("stop_token_ids", self.stop_token_ids),
        ):
            wrong = next((token for token in ids if token >= vocab_size), None)
            if wrong is not None:
                raise InputError(name, wrong, f"token ids from 0 to {vocab_size - 1}")


def _whole(field: str, value: Any, low: int, high: int = MOST_TOKENS, high_text: str = "") -> int:
    """A whole number from low to high; a bool is none, and neither is 3.0, which hides a rounded one."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else low - 1
    if not low <= number <= high:
        upper = "up" if high == MOST_TOKENS and number < low else f"to {high_text or high}"
        raise InputError(field, value, f"a whole number from {low} {upper}")
    return number


def _number(field: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # a NaN is in no range
    if not is_number or not low <= value <= high or (above and value == low):
        raise InputError(
            field, value, f"a number {'above' if above else 'from'} {low} {'up to' if above else 'to'} {high}"
        )
    return float(value)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(field, value, "true or false")
    return value


def _texts(field: str, value: Any) -> tuple[str, ...]:
    """A text alone is a list of one: taken apart into characters it would stop at each of them."""
    texts = (value,) if isinstance(value, str) else value
    accepted = "a list of texts of at least one character"
    if not isinstance(texts, list | tuple):
        raise InputError(field, value, accepted)
    wrong = next((text for text in texts if not isinstance(text, str) or not text), None)
    if wrong is not None or None in texts:
        raise InputError(field, wrong, accepted)
    if len(texts) > MOST_STOPS or any(len(text) > LONGEST_STOP for text in texts):
        few = f"at most {MOST_STOPS} texts of at most {LONGEST_STOP} characters"
        raise InputError(field, f"{len(texts)} texts", few)
    return tuple(texts)


def _ids(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(field, value, "a list of token ids")
    if len(value) > MOST_STOP_IDS:
        raise InputError(field, f"{len(value)} ids", f"at most {MOST_STOP_IDS}")
    return tuple(_token_id(field, token) for token in value)


def _bias(field: str, value: Any) -> tuple[tuple[int, float], ...]:
    accepted = "token ids, each once, with numbers from -100 to 100"
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list | tuple):
        raise InputError(field, value, accepted)
    bias: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InputError(field, pair, accepted)
        token = _token_id(field, pair[0])
        if token in bias:
            raise InputError(field, token, accepted)
        bias[token] = _number(f"{field} of token {token}", pair[1], -100, 100)
    return tuple(bias.items())


def _token_id(field: str, value: Any) -> int:
    return _whole(f"{field} (a token id)", value, 0)
