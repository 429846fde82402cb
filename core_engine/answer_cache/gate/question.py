"""A question as the gate reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

HAN = re.compile(r"[\u3400-\u9fff]")
BELOW_ZERO = re.compile(r"(?<![A-Za-z0-9_)\]])[-−](\d+(?:[.,]\d+)*)")  # not the dash of "3-5" or "part-2"


@dataclass(frozen=True)
class Reading:
    """What a language's reader finds in a text.

    tokens: words (or Chinese characters), in order, in a form in which inflections are alike. wording: the same with
    ways to ask in one form, and without what may come and go in a sentence that otherwise stays. numbers: values, as
    written or spelled, however often; units: of measure, beside a number. names: what looks like a name, lower case.
    poles: (pair, side) of opposites that occur, as "before" and "after". asks: what kind of thing
    is asked for, where a question word says so. negated: whether something is denied or left out.
    """

    tokens: tuple[str, ...]
    wording: tuple[str, ...]
    numbers: tuple[str, ...]
    units: frozenset[str]
    names: frozenset[str]
    poles: frozenset[tuple[int, int]]
    asks: frozenset[str]
    negated: bool

    def turns(self, other: Reading) -> bool:
        """Whether other says the opposite of a word of this, which this says nowhere and other does not say itself."""
        return any((pair, 1 - side) in other.poles - self.poles for pair, side in self.poles - other.poles)


def with_signs(values: Sequence[str], below_zero: Iterable[str]) -> list[str]:
    """Values of numbers, with a minus in front of those that stand below zero."""
    found = list(values)
    for value in below_zero:
        found[found.index(value)] = f"-{value}"
    return found


@dataclass(frozen=True)
class Question:
    """A question's text, its language ("en" or "zh") and its reading, made when it is first needed."""

    text: str
    language: str

    @cached_property
    def reading(self) -> Reading:
        from core_engine.answer_cache.gate.chinese import read_chinese
        from core_engine.answer_cache.gate.english import read_english

        return read_chinese(self.text) if self.language == "zh" else read_english(self.text)


def read_question(text: str) -> Question:
    """A text that has Chinese characters counts as Chinese; any other is read by the rules for English, of which those
    for numbers and names hold in most languages."""
    return Question(text, "zh" if HAN.search(text) else "en")
