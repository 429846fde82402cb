"""Wording answers: OpenAI's JSON for completions and chats, whole or as chunks of an event stream.

Owns the shapes. A chunk is written for every token of every stream, so what is the same in all chunks of an answer is
made once and only the text is encoded anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core_engine.plan import TokenLogprobs

DONE = b"data: [DONE]\n\n"


@dataclass
class Usage:
    """Tokens of a request: prompts once whatever n, answers of all samples, prompt tokens found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class TokenTexts:
    """Texts and bytes of single tokens, for log-probabilities; each is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def text(self, token_id: int) -> str:
        """What the token adds inside a text."""
        if token_id not in self._texts:
            self._texts[token_id] = self._tokenizer.token_text(token_id)
        return self._texts[token_id]

    def bytes(self, token_id: int) -> list[int]:
        """Its bytes, those of its text where the tokenizer knows no other."""
        known = getattr(self._tokenizer, "token_bytes", None)
        return list(known[token_id] if known is not None else self.text(token_id).encode())


@dataclass
class Choice:
    """One answer in the making. offset: characters of its tokens so far, for a completion's log-probabilities."""

    index: int
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    offset: int = 0

    def take_logprobs(self, kind: str, tokens: Sequence[int], found: Sequence[TokenLogprobs], texts: TokenTexts) -> Any:
        """The JSON of new tokens' log-probabilities, kept for a whole answer too."""
        of_kind = _chat_logprobs if kind == "chat" else self._completion_logprobs
        entry = of_kind(tokens, found, texts)
        self.logprobs.append(entry)
        return entry

    def _completion_logprobs(
        self, tokens: Sequence[int], found: Sequence[TokenLogprobs], texts: TokenTexts
    ) -> dict[str, Any]:
        words = [texts.text(token) for token in tokens]
        offsets = []
        for word in words:
            offsets.append(self.offset)
            self.offset += len(word)
        return {
            "text_offset": offsets,
            "token_logprobs": [entry.chosen for entry in found],
            "tokens": words,
            "top_logprobs": [_top(token, entry, texts) for token, entry in zip(tokens, found, strict=True)],
        }

    def whole_logprobs(self) -> dict[str, Any] | None:
        """Those of the whole answer; None when none were asked for."""
        if not self.logprobs:
            return None
        return {name: [item for entry in self.logprobs for item in entry[name]] for name in self.logprobs[0]}


def _top(token: int, entry: TokenLogprobs, texts: TokenTexts) -> dict[str, float]:
    """The likeliest tokens, and the chosen one; of two with the same text the likelier counts."""
    top: dict[str, float] = {}
    for other, logprob in (*entry.top, (token, entry.chosen)):
        top.setdefault(texts.text(other), logprob)
    return top


def _chat_logprobs(tokens: Sequence[int], found: Sequence[TokenLogprobs], texts: TokenTexts) -> dict[str, Any]:
    def word(token: int, logprob: float) -> dict[str, Any]:
        return {"token": texts.text(token), "logprob": logprob, "bytes": texts.bytes(token)}

    return {
        "content": [
            word(token, entry.chosen) | {"top_logprobs": [word(*other) for other in entry.top]}
            for token, entry in zip(tokens, found, strict=True)
        ]
    }


class Wording:
    """The JSON of one answer. include_usage: chunks have a usage, null but in the last; each_usage: one in every."""

    def __init__(self, kind: str, id: str, created: int, model: str, *, include_usage: bool, each_usage: bool) -> None:
        self.kind = kind
        self._id, self._created, self._model = id, created, model
        self._chat = kind == "chat"
        self._head = f"data: {_json(self._envelope(streamed=True))[:-1]},"
        self._null_usage = ',"usage":null' if include_usage and not each_usage else ""
        self.each_usage = each_usage

    def _envelope(self, *, streamed: bool) -> dict[str, Any]:
        names = {"chat": "chat.completion.chunk" if streamed else "chat.completion", "completion": "text_completion"}
        return {"id": self._id, "object": names[self.kind], "created": self._created, "model": self._model}

    def role(self, index: int) -> str:
        """The chunk that opens a chat's answer; it holds no token."""
        delta = '{"role":"assistant","content":""}'
        return self._chunk(index, f'"delta":{delta}', "null", None, None)

    def chunk(
        self, index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None, usage: Usage | None
    ) -> str:
        """The chunk of a step's text."""
        words = json.dumps(text)
        if self._chat:
            body = f'"delta":{{"content":{words}}}' if text or finish_reason is None else '"delta":{}'
        else:
            body = f'"text":{words}'
        return self._chunk(index, body, "null" if logprobs is None else _json(logprobs), finish_reason, usage)

    def _chunk(self, index: int, body: str, logprobs: str, finish_reason: str | None, usage: Usage | None) -> str:
        reason = "null" if finish_reason is None else f'"{finish_reason}"'
        tail = f',"usage":{_json(usage.to_json())}' if self.each_usage and usage is not None else self._null_usage
        choice = f'{{"index":{index},{body},"logprobs":{logprobs},"finish_reason":{reason}}}'
        return f'{self._head}"choices":[{choice}]{tail}}}\n\n'

    def usage_chunk(self, usage: Usage) -> str:
        """The last chunk, without choices."""
        return f'{self._head}"choices":[],"usage":{_json(usage.to_json())}}}\n\n'

    def whole(self, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
        """The reply without streaming."""
        return {
            **self._envelope(streamed=False),
            "choices": [self._whole_choice(choice) for choice in choices],
            "usage": usage.to_json(),
        }

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        text = "".join(choice.texts)
        answer = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {
            "index": choice.index,
            **answer,
            "logprobs": choice.whole_logprobs(),
            "finish_reason": choice.finish_reason,
        }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def error_event(body: dict[str, Any]) -> bytes:
    """An error in a stream that has begun. No [DONE] follows: the answer is not whole."""
    return f"data: {_json(body)}\n\n".encode()
