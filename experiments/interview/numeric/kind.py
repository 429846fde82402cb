"""A kind of numeric question: fresh parameters by seed, a key computed from them, and the mistakes it invites.

A mistake is a function like the key. Parameters for which a mistake gives what the right way gives, or for which two
mistakes can't be told apart, are drawn anew, so a wrong answer that equals a mistake can always be told by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from experiments.interview.words import Lang, filled, kind_words
from experiments.units import parse_quantity
from ledger.errors import InputError

Values = Mapping[str, Any]
MOST_DRAWS = 2_000


@dataclass(frozen=True)
class Kind:
    """What all questions of a kind share.

    unit        what the answer is asked in (experiments.units)
    draw        parameters from random numbers; None for a set that makes no question
    key         the right answer, in `unit`
    mistakes    name -> what that mistake gives, from the parameters and the right answer; None where it doesn't apply
    shown       further numbers that the texts print
    tolerance   how far from the key an answer may be, as a share of it: room for rounding by hand
    whole       a count: an answer has to be that whole number (or within the tolerance, if that is more)
    """

    name: str
    topic: str
    unit: str
    draw: Callable[[Random], Values | None]
    key: Callable[[Values], float]
    mistakes: Mapping[str, Callable[[Values, float], float | None]]
    shown: Callable[[Values], Values] = field(default=lambda _values: {})
    tolerance: float = 0.02
    whole: bool = False

    def slack(self, value: float) -> float:
        """How far an answer may be from a value and still be that value."""
        return max(0.5 if self.whole else 0.0, self.tolerance * abs(value))


@dataclass(frozen=True)
class NumericGrade:
    """value: what was read, in the question's unit. mistake: the name of the one that gives it, if any does."""

    correct: bool
    value: float
    mistake: str | None


@dataclass(frozen=True)
class NumericQuestion:
    """One question of a kind, with its parameters. `seed` None: the parameters were given."""

    kind: Kind
    values: Values
    seed: int | None = None

    @cached_property
    def answer(self) -> float:
        """The key, in the kind's unit."""
        return self.kind.key(self.values)

    @cached_property
    def mistakes(self) -> dict[str, float]:
        """Name -> what the mistake gives, of those that apply."""
        found = {name: wrong(self.values, self.answer) for name, wrong in self.kind.mistakes.items()}
        return {name: float(value) for name, value in found.items() if value is not None}

    @property
    def is_clear(self) -> bool:
        """Whether the right answer and every mistake can be told from one another by their values."""
        values = [self.answer, *self.mistakes.values()]
        slack = self.kind.slack
        return self.answer != 0 and all(
            one != other and abs(one - other) >= slack(one) + slack(other)
            for place, one in enumerate(values)
            for other in values[:place]
        )

    def ask(self, lang: Lang) -> str:
        """The question, with its numbers."""
        return self._text(lang, "ask")

    def solution(self, lang: Lang) -> str:
        """The way to the answer, with the numbers put in."""
        return self._text(lang, "solution")

    def _text(self, lang: Lang, part: str) -> str:
        numbers = {**self.values, **self.kind.shown(self.values), "answer": self.answer}
        return filled(kind_words(lang)[self.kind.name][part], numbers)

    def grade(self, text: str) -> NumericGrade:
        """Grade an answer with its unit. InputError for text that is no quantity of this kind."""
        value = parse_quantity(text, self.kind.unit).in_unit(self.kind.unit)
        if abs(value - self.answer) <= self.kind.slack(self.answer):
            return NumericGrade(True, value, None)
        near = [name for name, wrong in self.mistakes.items() if abs(value - wrong) <= self.kind.slack(wrong)]
        return NumericGrade(False, value, near[0] if near else None)


def drawn(kind: Kind, seed: int) -> NumericQuestion:
    """The question of a kind that a seed gives: always the same one. InputError for a seed that is no whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) >= 10**18:
        raise InputError("seed", seed, "a whole number")
    rng = Random(f"{kind.name}:{seed}")
    for _ in range(MOST_DRAWS):
        values = kind.draw(rng)
        if values is not None and (question := NumericQuestion(kind, values, seed)).is_clear:
            return question
    raise RuntimeError(f"{kind.name}: no clear question in {MOST_DRAWS} draws")
