"""Which model a calculator is asked about: a preset, the text of a config.json, or typed numbers. Hashable."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass

from ledger.errors import InputError
from ledger.fields import MAX_CONFIG_BYTES, parse_config
from ledger.model_spec import ModelSpec, load_model_spec

MOST_IN_ADDRESS = 1800
"""Characters of a packed config that still go into an address: browsers and chat programs cut longer ones."""
MOST_INDENTED = 2**16  # bytes


@dataclass(frozen=True)
class ModelSource:
    """One of `preset`, `config` (JSON text) or `fields` (layers, KV heads, head size)."""

    preset: str | None = None
    config: str | None = None
    fields: tuple[int, int, int] | None = None
    plain_attention: bool = False

    def spec(self) -> ModelSpec:
        """The model; InputError names what is wrong with it."""
        if self.preset is not None:
            return load_model_spec(self.preset)
        if self.config is not None:
            values = parse_config(self.config, "the pasted text")
            return ModelSpec.from_config(values, plain_attention=self.plain_attention)
        if self.fields is None:
            raise InputError("model", "", "a preset, a config.json or typed numbers")
        layers, kv_heads, head_dim = self.fields
        return ModelSpec.from_fields(layers=layers, kv_heads=kv_heads, head_dim=head_dim)

    def argument(self) -> str:
        """How the command line is told the same model."""
        if self.fields is not None:
            layers, kv_heads, head_dim = self.fields
            return f"--layers {layers} --kv-heads {kv_heads} --head-dim {head_dim}"
        if self.preset is not None:
            return self.preset
        return "config.json --plain-attention" if self.plain_attention else "config.json"


def packed(config: str) -> str | None:
    """The config for an address: JSON without spaces, compressed, base64; None when it is too long, or no JSON."""
    try:
        plain = json.dumps(json.loads(config), separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    text = base64.urlsafe_b64encode(zlib.compress(plain.encode(), 9)).decode().rstrip("=")
    return text if len(text) <= MOST_IN_ADDRESS else None


def unpacked(text: str) -> str | None:
    """The config of an address; None when it is not one. Never more than the largest config that is accepted."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        plain = zlib.decompressobj().decompress(raw, MAX_CONFIG_BYTES)
        # Indenting what is nested deeply makes it hundreds of times as long; people's configs are short and shallow.
        return json.dumps(json.loads(plain), indent=1 if len(plain) <= MOST_INDENTED else None)
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return None
