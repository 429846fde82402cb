"""Turns a WorkloadSpec's texts into prompt ids: which maker, which prefix, template or raw, first or later turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.workloads.spec import WorkloadSpec
from experiments.workloads.text import (
    TokenizerLike,
    block_of_text,
    chat_prompt,
    exact_prompt,
    give_back_prompt,
    question,
    shared_prompt,
    stock_prompt,
)

GIVEN_BACK = {"repeat": "text", "rename": "code"}
# Stands for an answer in a conversation whose template is asked for; letters alone, so that it stays apart.
PLACEHOLDER = "Xylophone"


class Prompts:
    """Makes the prompts of one workload. `prefixes` are the shared texts, by group."""

    def __init__(self, spec: WorkloadSpec, tokenizer: TokenizerLike, prefixes: Sequence[str]) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._prefixes = prefixes

    def first(self, num_tokens: int, rng: np.random.Generator, group: int | None) -> tuple[int, ...]:
        """The prompt of a request that stands alone, or of a conversation's first turn."""
        spec, tokenizer = self._spec, self._tokenizer
        prefix = "" if group is None else self._prefixes[group]
        if spec.text in GIVEN_BACK:
            return give_back_prompt(tokenizer, num_tokens, rng, what=GIVEN_BACK[spec.text])
        if spec.chat:
            if spec.text == "question" and not prefix:
                return chat_prompt(tokenizer, num_tokens, rng)
            system = [{"role": "system", "content": prefix}] if prefix else []
            return chat_ids(tokenizer, [*system, {"role": "user", "content": self._content(num_tokens, rng)}])
        if spec.text == "question":
            return shared_prompt(tokenizer, num_tokens, rng, system=prefix)
        behind = f"{prefix}\n\n" if prefix else ""
        if spec.text == "plain":
            return exact_prompt(tokenizer, num_tokens, rng, behind=behind)
        return stock_prompt(tokenizer, num_tokens, rng, kind=spec.text, behind=behind)

    def asked(self, text: str, group: int | None) -> tuple[int, ...]:
        """The prompt of a question that is there."""
        prefix = "" if group is None else self._prefixes[group]
        if self._spec.chat:
            system = [{"role": "system", "content": prefix}] if prefix else []
            return chat_ids(self._tokenizer, [*system, {"role": "user", "content": text}])
        return tuple(self._tokenizer.encode(f"{prefix}\n\n{text}" if prefix else text))

    def later(self, num_tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
        """What a later turn adds behind the answer before it."""
        if self._spec.chat:
            return next_turn_ids(self._tokenizer, self._content(num_tokens, rng))
        if self._spec.text == "plain":
            return block_of_text(self._tokenizer, num_tokens, rng)
        if self._spec.text == "question":
            return tuple(self._tokenizer.encode(f"\n\n{question(self._tokenizer, num_tokens, rng)}\n\n"))
        return stock_prompt(self._tokenizer, num_tokens, rng, kind=self._spec.text)

    def _content(self, num_tokens: int, rng: np.random.Generator) -> str:
        """What the user says in a conversation with a template."""
        if self._spec.text == "question":
            return question(self._tokenizer, num_tokens, rng)
        if self._spec.text == "plain":
            return self._tokenizer.decode(list(exact_prompt(self._tokenizer, num_tokens, rng)))
        return self._tokenizer.decode(list(stock_prompt(self._tokenizer, num_tokens, rng, kind=self._spec.text)))


def chat_ids(tokenizer: TokenizerLike, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
    """Ids of a conversation, ready for the assistant's answer; CannotRunError without a template."""
    return tuple(tokenizer.apply_chat_template(messages))


def next_turn_ids(tokenizer: TokenizerLike, content: str) -> tuple[int, ...]:
    """What the chat template puts between an answer and the next one, with `content` as the user's next message.

    Found by rendering a conversation whose answer is known. CannotRunError without a template. A template that rewrites
    answers gets the message behind a blank line.
    """
    ids = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "A"},
            {"role": "assistant", "content": PLACEHOLDER},
            {"role": "user", "content": content},
        ]
    )
    answer = list(tokenizer.encode(PLACEHOLDER))
    for start in range(len(ids) - len(answer)):
        if list(ids[start : start + len(answer)]) == answer:
            return tuple(ids[start + len(answer) :])
    return tuple(tokenizer.encode(f"\n\n{content}\n\n"))
