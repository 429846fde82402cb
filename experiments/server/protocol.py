"""Reading OpenAI's completion and chat requests: from a body to sampling parameters, or a refusal.

Owns which parameters exist, which values of others ask for nothing, and their translation. Knows no HTTP, no engine.
A parameter that would have to be ignored is refused by name: a caller who asked for something else than he gets has
not been served.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from core_engine.answer_cache import CacheAsk
from core_engine.answer_cache.ask import checked_tags
from core_engine.sampling_params import SamplingParams
from experiments.server.errors import Refusal
from ledger.errors import InputError

COMPLETION_TOKENS = 16  # OpenAI's default for a completion; a chat's is the room there is
MOST_PROMPTS = 1024

# Taken as they are, under the names that SamplingParams has: OpenAI's own, and vLLM's extras.
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "ignore_eos", "min_tokens", "stop_token_ids", "max_tokens",
)  # fmt: skip
COMMON = (*SAMPLING, "model", "stream", "stream_options", "user", "cache")
OF_KIND = {
    "completion": (*COMMON, "prompt", "logprobs"),
    "chat": (*COMMON, "messages", "max_completion_tokens", "logprobs", "top_logprobs"),
}
# Parameters of other servers, with the values that ask for nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "use_beam_search": (False,),
    "add_special_tokens": (True,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none",),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "metadata": ({},),
    "add_generation_prompt": (True,),
    "length_penalty": (1, 1.0),
    "priority": (0,),
}
STREAM_OPTIONS = ("include_usage", "continuous_usage_stats")
ROLES = "system, user, assistant and whatever else the model's chat template knows"


@dataclass(frozen=True)
class Asked:
    """What one request asks. prompts: texts or token ids; messages: of a chat, None for a completion.

    include_usage: a last chunk with the usage; continuous_usage: one with every chunk. cache: what it allows of the
    answer caches, where the engine has some.
    """

    kind: str
    model: str | None
    prompts: tuple[str | tuple[int, ...], ...]
    messages: tuple[Mapping[str, str], ...] | None
    sampling: Mapping[str, Any]
    max_tokens_name: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    cache: CacheAsk = field(default_factory=CacheAsk)

    def params(self, room: int) -> SamplingParams:
        """The sampling parameters; room: most tokens of an answer, the default of a chat."""
        default = COMPLETION_TOKENS if self.kind == "completion" else max(1, room)
        try:
            return SamplingParams(**{"max_tokens": default, "temperature": 1.0, **self.sampling})
        except InputError as error:
            if error.field == "max_tokens":
                raise InputError(self.max_tokens_name, error.value, error.accepted) from None
            if error.field == "logprobs" and self.kind == "chat":
                raise InputError("top_logprobs", error.value, error.accepted) from None
            raise


def parse_body(kind: str, body: bytes) -> Asked:
    """The request in a body; kind is "completion" or "chat". InputError names field, value and what is accepted."""
    given = _object(body)
    known = OF_KIND[kind]
    for name, value in given.items():
        if name not in known:
            _require_neutral(name, value, given, known)
    stream = _flag(given, "stream")
    options = _stream_options(given, stream)
    sampling = {name: given[name] for name in SAMPLING if name in given}
    if sampling.get("top_k") == -1:  # vLLM's other way to say that it is off
        sampling["top_k"] = 0
    if "logit_bias" in sampling:
        sampling["logit_bias"] = _bias(sampling["logit_bias"])
    limit = "max_tokens"
    if kind == "chat":
        if "max_completion_tokens" in given:
            limit = "max_completion_tokens"
            sampling["max_tokens"] = given[limit]
        sampling["logprobs"] = _chat_logprobs(given)
    elif "logprobs" in given:
        sampling["logprobs"] = given["logprobs"]
    asked = Asked(
        kind,
        _text_or_none(given, "model"),
        _prompts(given.get("prompt")) if kind == "completion" else (),
        _messages(given.get("messages")) if kind == "chat" else None,
        sampling,
        limit,
        stream,
        bool(options.get("include_usage")),
        bool(options.get("continuous_usage_stats")),
        _cache(kind, given),
    )
    asked.params(room=2**31)  # whatever is wrong with a value is said before anything is computed
    return asked


def tags_of(body: bytes) -> tuple[str, ...] | None:
    """The tags in {"tags": [...]}; None for an empty body or without any, which stands for all."""
    given = _object(body) if body.strip() else {}
    for name, value in given.items():
        if name != "tags":
            raise InputError(name, value, "only tags")
    return checked_tags(given["tags"]) if "tags" in given else None


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body, without the fields that are null: absent and null are the same in this protocol."""
    try:
        given = json.loads(body.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError("body", body[:40].decode(errors="replace"), f"JSON in UTF-8 ({_short(error)})") from None
    if not isinstance(given, dict):
        raise InputError("body", type(given).__name__, "a JSON object")
    return {name: value for name, value in given.items() if value is not None}


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _require_neutral(name: str, value: Any, given: Mapping[str, Any], known: Sequence[str]) -> None:
    accepted = NEUTRAL.get(name)
    if accepted is None:
        raise InputError(name, value, f"only these parameters: {', '.join(known)}")
    if name == "best_of" and value == given.get("n", 1):
        return
    # 1 == True in Python, and a flag is no number.
    if not any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in accepted):
        words = " or ".join(json.dumps(neutral) for neutral in accepted)
        raise InputError(name, value, f"{words}, since it is not supported otherwise")


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    return value


def _cache(kind: str, given: Mapping[str, Any]) -> CacheAsk:
    """What a body allows of the answer caches. Of a chat the last message is the question, unless it says otherwise."""
    ask = CacheAsk.from_json(given["cache"]) if "cache" in given else CacheAsk()
    if kind == "chat" and ask.semantic and ask.question is None:
        return replace(ask, question=_messages(given.get("messages"))[-1]["content"])
    return ask


def _text_or_none(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(name, value, "a text")
    return value


def _stream_options(given: Mapping[str, Any], stream: bool) -> Mapping[str, bool]:
    options = given.get("stream_options", {})
    if not isinstance(options, dict):
        raise InputError("stream_options", options, f"an object with {' or '.join(STREAM_OPTIONS)}")
    if options and not stream:
        raise InputError("stream_options", options, "only together with stream=true")
    for name, value in options.items():
        if name not in STREAM_OPTIONS:
            raise InputError(f"stream_options.{name}", value, f"only {' and '.join(STREAM_OPTIONS)}")
        if not isinstance(value, bool | None):
            raise InputError(f"stream_options.{name}", value, "true or false")
    return options


def _bias(value: Any) -> Any:
    """Token ids are names in JSON, and names are texts."""
    if not isinstance(value, dict):
        return value  # for SamplingParams to refuse
    try:
        return {int(token): bias for token, bias in value.items()}
    except ValueError:
        raise InputError("logit_bias", list(value), "token ids with numbers from -100 to 100") from None


def _chat_logprobs(given: Mapping[str, Any]) -> int | None:
    wanted = _flag(given, "logprobs")
    if "top_logprobs" in given and not wanted:
        raise InputError("top_logprobs", given["top_logprobs"], "only together with logprobs=true")
    return given.get("top_logprobs", 0) if wanted else None


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    """A text, a list of texts, token ids, or a list of token ids."""
    accepted = "a text, a list of texts, a list of token ids, or a list of lists of token ids"
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise InputError("prompt", type(value).__name__ if value else value, accepted)
    if _is_ids(value):
        return (tuple(value),)
    if len(value) > MOST_PROMPTS:
        raise InputError("prompt", f"{len(value)} prompts", f"at most {MOST_PROMPTS}")
    if all(isinstance(item, str) for item in value):
        return tuple(value)
    if all(isinstance(item, list) and _is_ids(item) for item in value):
        return tuple(map(tuple, value))
    raise InputError("prompt", "a list of something else", accepted)


def _is_ids(value: Sequence[Any]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _messages(value: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise InputError("messages", value, "a list of at least one message")
    return tuple(_message(f"messages[{place}]", item) for place, item in enumerate(value))


def _message(field: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise InputError(field, value, 'an object such as {"role": "user", "content": "Hello"}')
    given = {name: item for name, item in value.items() if item is not None}
    for name in given:
        if name not in ("role", "content"):
            raise InputError(f"{field}.{name}", given[name], "only role and content")
    role = given.get("role")
    if not isinstance(role, str) or not role:
        raise InputError(f"{field}.role", role, ROLES)
    return {"role": role, "content": _content(f"{field}.content", given.get("content"))}


def _content(field: str, value: Any) -> str:
    """A text, or a list of parts that are texts."""
    if isinstance(value, str):
        return value
    accepted = 'a text, or a list of parts such as {"type": "text", "text": "Hello"}'
    if not isinstance(value, list) or not value:
        raise InputError(field, value, accepted)
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in value]
    if any(not isinstance(text, str) for text in texts):
        raise InputError(field, "a part of another kind", accepted)
    return "\n".join(text for text in texts if text is not None)


def require_model(asked: Asked, served: str) -> None:
    """Refusal 404 when a request asks for another model than the one that is served; none means that one."""
    if asked.model not in (None, served):
        message = f"model: {asked.model!r} is not served; accepted: {served}"
        raise Refusal(404, message, param="model", code="model_not_found")
