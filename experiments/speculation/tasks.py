"""The kinds of task that forms of draft are compared on, and their prompts as token ids."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from ledger.errors import CannotRunError

TASKS = ("chat", "code", "copy", "open")


@cache
def prompts_of(task: str) -> tuple[str, ...]:
    """The project's own prompts of a kind of task."""
    found = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
    return tuple(found[task]["prompts"])


def most_prompts() -> int:
    """Of any kind of task."""
    return max(len(prompts_of(task)) for task in TASKS)


def prompt_ids(tokenizer: Any, task: str, limit: int | None = None) -> list[list[int]]:
    """The first `limit` prompts of a task as a model is asked them: in its chat format, as plain text without one."""
    return [_ids(tokenizer, text) for text in prompts_of(task)[:limit]]


def _ids(tokenizer: Any, text: str) -> list[int]:
    try:
        ids: list[int] = tokenizer.apply_chat_template([{"role": "user", "content": text}])
    except CannotRunError:  # no template
        ids = tokenizer.encode(f"{text}\n\n")
    return ids
