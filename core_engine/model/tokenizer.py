"""Tokenizer: text to ids and back, and the chat template, from a model directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders

from ledger.errors import CannotRunError, InputError


class Tokenizer:
    """tokenizer.json through the tokenizers library, with the model's chat template.

    eos_token_ids: every id that ends an answer. byte_tokens: the byte of each token like <0x0A> of a tokenizer that
    spells rare characters so, empty for others. token_bytes: of a byte-level one, what `decode` joins for each
    id (none for special tokens); None for others, whose tokens have no bytes of their own.
    """

    def __init__(self, directory: Path, eos_token_ids: tuple[int, ...]) -> None:
        self._tokenizer = _load(directory)
        settings = _read_json(directory / "tokenizer_config.json")
        self._template = _chat_template(directory, settings)
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        self._special = {name: _content(settings[name]) for name in names if settings.get(name)}
        self._bos_id = self._tokenizer.token_to_id(self._special.get("bos_token", ""))
        self.eos_token_ids = eos_token_ids
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.byte_tokens = self._byte_tokens()
        is_byte_level = isinstance(self._tokenizer.decoder, decoders.ByteLevel)
        self.token_bytes = TokenBytes(self._tokenizer) if is_byte_level else None

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as the model's own tokenizer gives them, special tokens in the text included.

        A text that brings its own beginning-of-sequence token, as one from a chat template does, gets no second one.
        """
        ids = self._encode(text, add_special_tokens=True)
        return ids[1:] if self._bos_id is not None and ids[:2] == [self._bos_id] * 2 else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def token_text(self, token_id: int) -> str:
        """What one token adds inside a text, its leading space included; the name of a special token.

        Part of a character shows as U+FFFD. For listings; a text's own words come from `decode`.
        """
        first = self.decode([token_id])
        return self.decode([token_id, token_id])[len(first) :] or self._tokenizer.id_to_token(token_id) or ""

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of a conversation ({"role", "content"} each) up to where the assistant answers.

        CannotRunError when the model has no template or a faulty one, InputError when it refuses the messages. The
        template writes the special tokens itself, so none are added.
        """
        if not self._template:
            raise CannotRunError("model: it has no chat template; send a raw prompt instead")
        from core_engine.model.chat_template import render

        return self._encode(render(self._template, messages, self._special), add_special_tokens=False)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError("prompt", text, "text in valid Unicode") from None
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def _byte_tokens(self) -> dict[int, int]:
        found = {byte: self._tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
        ids = {token: byte for byte, token in found.items() if token is not None}
        # Such names may be in a vocabulary whose decoder shows them as they are.
        return ids if found[0x41] is not None and self.decode([found[0x41]]) == "A" else {}


class TokenBytes(dict[int, bytes]):
    """Bytes of each token of a byte-level tokenizer, looked up once; none for special tokens and unknown ids.

    The vocabulary spells bytes as printable characters (`bytes_to_unicode` of GPT-2's encoder.py). As in the tokenizers
    library, a token with any other character, which only an added one has, stands for itself.
    """

    def __init__(self, tokenizer: RustTokenizer) -> None:
        super().__init__()
        self._name = tokenizer.id_to_token
        self._special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        self._spelled = _byte_spelling()

    def __missing__(self, token_id: int) -> bytes:
        name = self._name(token_id)
        found = b"" if name is None or name in self._special else self._bytes(name)
        self[token_id] = found
        return found

    def _bytes(self, name: str) -> bytes:
        spelled = [self._spelled.get(char) for char in name]
        return name.encode() if None in spelled else bytes(byte for byte in spelled if byte is not None)


def _byte_spelling() -> dict[str, int]:
    """Printable characters of Latin-1 stand for themselves, the other bytes in order for those from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def _load(directory: Path) -> RustTokenizer:
    path = directory / "tokenizer.json"
    if not path.is_file():
        found = "only tokenizer.model" if (directory / "tokenizer.model").is_file() else "no tokenizer.json"
        raise CannotRunError(
            f"model: {directory} has {found}; write a tokenizer.json beside the weights, once, with transformers: "
            "AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
        )
    try:
        tokenizer = RustTokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise InputError("model", str(path), f"a readable tokenizer.json ({error})") from None
    # Settings of a training run that some files still carry: a prompt must never be cut or filled up unseen.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _chat_template(directory: Path, settings: Mapping[str, Any]) -> str | None:
    """The template from its own file or from tokenizer_config.json; of several there the one named default."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template}
        return named.get("default") or next(iter(named.values()), None)
    return template


def _content(token: Any) -> str:
    """Special tokens are stored as text or as {"content": text}."""
    return token.get("content", "") if isinstance(token, dict) else str(token)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("model", str(path), f"a readable JSON file ({error})") from None
    if not isinstance(content, dict):
        raise InputError("model", str(path), "a JSON object")
    return content
