"""Reading typed values out of a config.json. Owns validation; knows no architecture.

Every bad value becomes an InputError that names the field. Absent and null are kept apart, because model classes do: an
absent `q_lora_rank` means the class default, a null one means there is none.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger.errors import InputError

MAX_CONFIG_BYTES = 4 * 1024 * 1024  # the largest real config.json known to us is under 1 MiB
MAX_INTEGER = 10**9
CONFIG_SOURCES = "a readable config.json, a model directory, a preset, or -"
MAX_LAYERS = 1_000  # the deepest published model has 126; ten times that still answers at once


class Fields:
    """A config section with typed, validated access. `where` prefixes names in messages ("text_config.")."""

    def __init__(self, values: Mapping[str, object], where: str = "") -> None:
        self.values = values
        self.where = where

    def has(self, name: str) -> bool:
        """True when the key is there with a value other than null."""
        return self.values.get(name) is not None

    def integer(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        """The first of `names` that is set, else `default`. InputError when missing without one, or no integer."""
        found = self.optional_integer(*names, default=default, minimum=minimum)
        if found is None:
            raise InputError(self.where + names[0], "missing", f"an integer under {' or '.join(names)}")
        return found

    def optional_integer(self, *names: str, default: int | None = None, minimum: int = 1) -> int | None:
        """Like `integer`, but None when nothing is set. A null is None, not the default."""
        for name in names:
            if self.has(name):
                return self._checked(name, self.values[name], minimum)
        if any(name in self.values for name in names):
            return None
        return default

    def boolean(self, name: str, default: bool = False) -> bool:
        """A true or false; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(self.where + name, short(value), "true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(self.where + name, short(value), "a string")
        return value

    def strings(self, name: str, length: int | None) -> list[str] | None:
        """A list of strings (of exactly `length` unless None); None when absent, null or empty."""
        value = self._list(name, length)
        if value is None:
            return None
        if not all(isinstance(item, str) for item in value):
            raise InputError(self.where + name, short(value), "a list of strings")
        return [str(item) for item in value]

    def integers(self, name: str, length: int | None = None, minimum: int = 0) -> list[int] | None:
        """A list of integers (of `length` items when given); None when absent, null or empty."""
        value = self._list(name, length)
        return None if value is None else [self._checked(name, item, minimum) for item in value]

    def section(self, name: str) -> Fields | None:
        """A nested object; None when absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(self.where + name, short(value), "a JSON object")
        return Fields(value, f"{self.where}{name}.")

    def require(self, names: Iterable[str]) -> None:
        """InputError that lists every one of `names` that is not set."""
        missing = [name for name in names if not self.has(name)]
        if missing:
            raise InputError(self.where + ", ".join(missing), "missing", "a config that has these fields")

    def _list(self, name: str, length: int | None) -> list[object] | None:
        value = self.values.get(name)
        if value is None or value == []:
            return None
        if not isinstance(value, list):
            raise InputError(self.where + name, short(value), "a list")
        if len(value) > MAX_LAYERS or (length is not None and len(value) != length):
            raise InputError(self.where + name, f"{len(value)} entries", f"{length or f'at most {MAX_LAYERS}'} entries")
        return value

    def _checked(self, name: str, value: object, minimum: int) -> int:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_INTEGER:
            raise InputError(self.where + name, short(value), f"an integer from {minimum} to {MAX_INTEGER:,}")
        return value


def read_config(source: str | Path) -> dict[str, object]:
    """The JSON object in a config.json file, in a model directory, or on standard input (`-`).

    InputError when it cannot be read, is larger than MAX_CONFIG_BYTES, or is not a JSON object. Of a key that comes
    twice the last one counts, as in Python's own reader.
    """
    path = Path(source)
    try:
        if str(source) == "-":
            text = sys.stdin.read(MAX_CONFIG_BYTES + 1)
        else:
            path = path / "config.json" if path.is_dir() else path
            if not path.is_file():  # a device or a pipe may never end
                raise FileNotFoundError(path)
            with path.open("rb") as file:
                data = file.read(MAX_CONFIG_BYTES + 1)
            text = data.decode("utf-8-sig") if len(data) <= MAX_CONFIG_BYTES else " " * len(data)
    except (OSError, ValueError) as error:
        raise InputError("config", short(str(source)), CONFIG_SOURCES) from error
    return parse_config(text, "standard input" if str(source) == "-" else str(source))


def parse_config(text: str, source: str = "config") -> dict[str, object]:
    """The JSON object in `text`. InputError when it is too large, malformed or no object."""
    source = short(source)
    if len(text) > MAX_CONFIG_BYTES:
        raise InputError("config", source, f"a config.json of at most {MAX_CONFIG_BYTES // 2**20} MiB")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise InputError("config", source, "JSON that is not nested this deeply") from error
    except ValueError as error:
        raise InputError("config", source, f"JSON ({str(error)[:80]})") from error
    if not isinstance(value, dict):
        raise InputError("config", source, "one JSON object, as in a Hugging Face config.json")
    return value


def short(value: object) -> str:
    """A value in at most 60 printable ASCII characters of one line."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):  # deeply nested, or an integer too long to print
        text = f"a {type(value).__name__}"
    text = ascii(text[:200])[1:-1]  # escapes line ends, control characters and lone surrogates
    return text if len(text) <= 60 else text[:57] + "..."
