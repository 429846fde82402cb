"""Tokenizer: text to ids and back, and the chat template, from a model directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from ledger.errors import CannotRunError


class Tokenizer:
    """tokenizer.json through the tokenizers library, with the model's chat template (jinja2, sandboxed)."""

    def __init__(self, directory: Path, eos_token_ids: tuple[int, ...]) -> None:
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise CannotRunError(
                f"model: {directory} has no tokenizer.json; save the fast tokenizer beside the weights"
            )
        self._tokenizer = RustTokenizer.from_file(str(path))
        self._settings = _read_json(directory / "tokenizer_config.json")
        template = directory / "chat_template.jinja"
        self._template = template.read_text("utf-8") if template.is_file() else self._settings.get("chat_template")
        self.eos_token_ids = eos_token_ids
        self.vocab_size = self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as the model's own tokenizer gives them, special tokens in the text included."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of a conversation up to where the assistant answers; CannotRunError when the model has no template."""
        if not self._template:
            raise CannotRunError("model: it has no chat template; send a raw prompt instead")
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        special = {name: _content(self._settings.get(name)) for name in ("bos_token", "eos_token")}
        text = environment.from_string(self._template).render(messages=messages, add_generation_prompt=True, **special)
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _content(token: Any) -> str:
    """Special tokens are stored as text or as {"content": text}."""
    return token.get("content", "") if isinstance(token, dict) else token or ""


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
