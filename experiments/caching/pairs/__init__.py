"""Pairs of questions for the semantic cache: what should share an answer and what should not. Knows no cache.

Written by hand, apart from the cache's threshold and gate, in English and Simplified Chinese (each written in its
language, neither translated from the other). One file a language and kind, `<language>/<kind>.jsonl`:

    {"id": "en-p-001", "a": "...", "b": "...", "topic": "orders", "half": "tune"}

`paraphrase`: one answer serves both questions. `near_miss`: close in wording, yet the answers differ (a number, unit,
date, version, name or place; negation, direction, opposite, quantifier, tense; another property or object; who does
what). A topic of a language lies in one half only, in both files: what is fixed on "tune" is reported on "held", whose
topics the tuning has never seen. Both halves of a file are of the same size, at least 150 pairs; a half that has been
looked at while something was fixed is "tune" from then on, and another one is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from ledger.errors import InputError

__all__ = ["HALVES", "KINDS", "LANGUAGES", "Pair", "read_pairs"]

LANGUAGES = ("en", "zh")
KINDS = ("paraphrase", "near_miss")
HALVES = ("tune", "held")


@dataclass(frozen=True)
class Pair:
    """Two questions; `a` is the one asked first."""

    id: str
    a: str
    b: str
    topic: str
    half: str


def read_pairs(language: str, kind: str, half: str | None = None) -> list[Pair]:
    """The pairs of one file, in its order; of one half when `half` is given.

    Raises InputError naming a language, kind or half that there is not.
    """
    for field, value, accepted in (("language", language, LANGUAGES), ("kind", kind, KINDS), ("half", half, HALVES)):
        if value not in accepted and not (field == "half" and value is None):
            raise InputError(field, value, " or ".join(accepted))
    text = files(__name__).joinpath(language).joinpath(f"{kind}.jsonl").read_text(encoding="utf-8")
    pairs = [Pair(**json.loads(line)) for line in text.splitlines()]
    return [pair for pair in pairs if half is None or pair.half == half]
