"""Multiple-choice items scored by log-likelihood: their form, the reading of JSON Lines files, the project's own set.

Knows no model. An item is a prompt and its possible continuations; text is prompt + choice exactly as written, so a
choice carries its leading space where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.bounded import read_text
from ledger.errors import InputError

__all__ = ["SLICES", "Item", "default_items", "load_items"]

# The slices of the project's own set, one file each, in the order they are reported.
SLICES = ("common_facts", "rare_facts", "arithmetic", "code", "grammar", "long_context", "chinese")

_FIELDS = ("id", "slice", "prompt", "choices", "answer")


@dataclass(frozen=True)
class Item:
    """One question: `choices[answer]` is the continuation of `prompt` that is right."""

    id: str
    slice: str
    prompt: str
    choices: tuple[str, ...]
    answer: int


def load_items(path: str | Path) -> list[Item]:
    """The items of a JSON Lines file, in its order; empty lines are skipped.

    Each line is an object with `id`, `slice`, `prompt` (texts), `choices` (two or more different texts) and `answer`
    (the index of the right one). Raises InputError naming file, line, field, value and what is accepted.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError("items", str(path), "an existing JSON Lines file of multiple-choice items")
    return _read(str(file), read_text("items", file))


def default_items() -> list[Item]:
    """The project's own items: every slice of SLICES, in that order."""
    folder = files("experiments.quality").joinpath("items")
    names = [f"{name}.jsonl" for name in SLICES]
    return [item for name in names for item in _read(name, folder.joinpath(name).read_text("utf-8"))]


def _read(name: str, text: str) -> list[Item]:
    items: list[Item] = []
    seen: set[str] = set()
    for place, row in _rows(name, text):
        item = _item(row, place)
        if item.id in seen:
            raise InputError(f"{place}: id", item.id, "an id that no earlier line of the file has")
        seen.add(item.id)
        items.append(item)
    if not items:
        raise InputError(name, "an empty file", "at least one item")
    return items


def _rows(name: str, text: str) -> Iterator[tuple[str, Any]]:
    """Place ("file, line n") and parsed value of each line that is not empty."""
    # Not splitlines: JSON allows U+2028 and its like inside a text, and they end no line of the file.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            yield place, json.loads(line)
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", "nested too deeply")
            raise InputError(place, line[:80], f"one JSON object a line ({why})") from None


def _item(row: Any, place: str) -> Item:
    if not isinstance(row, dict):
        raise InputError(place, row, f"a JSON object with {', '.join(_FIELDS)}")
    for field in row:
        if field not in _FIELDS:
            raise InputError(f"{place}: {field}", row[field], f"no field but {', '.join(_FIELDS)}")
    for field in ("id", "slice", "prompt"):
        if not _is_text(row.get(field)):
            raise InputError(f"{place}: {field}", row.get(field), "a text that is not empty")
    choices, answer = row.get("choices"), row.get("answer")
    if not isinstance(choices, list) or len(choices) < 2 or not all(map(_is_text, choices)):
        raise InputError(f"{place}: choices", choices, "a list of two or more texts, none empty")
    if len(set(choices)) < len(choices):
        raise InputError(f"{place}: choices", choices, "texts that all differ")
    if type(answer) is not int or answer not in range(len(choices)):
        raise InputError(f"{place}: answer", answer, f"a whole number from 0 to {len(choices) - 1}")
    return Item(row["id"], row["slice"], row["prompt"], tuple(choices), answer)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""
