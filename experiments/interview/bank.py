"""The bank of written questions: open ones with a rubric, choices with a reason for each, and fixed numeric ones.

What does not depend on a language (topic, right answer, terms) is in bank.toml, the texts are in bank_en.toml and
bank_zh.toml. Knows no clock and no learner.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from experiments.interview import rubric
from experiments.interview.numeric import KINDS, NumericQuestion
from experiments.interview.words import Lang
from ledger.errors import InputError

LETTERS = "abcd"


@dataclass(frozen=True)
class Written:
    """What every question of the bank has: its name, topic, the claims it is about, and where it is from."""

    name: str
    topic: str
    claims: tuple[str, ...]
    source: str

    def texts(self, lang: Lang) -> Mapping[str, Any]:
        """Its texts in a language."""
        found: Mapping[str, Any] = _texts(lang)[self.name]
        return found

    def ask(self, lang: Lang) -> str:
        """The question."""
        return str(self.texts(lang)["ask"])


@dataclass(frozen=True)
class OpenQuestion(Written):
    """A question answered in one's own words."""

    rubric: rubric.Rubric

    def model_answer(self, lang: Lang) -> str:
        """An answer of ours."""
        return str(self.texts(lang)["answer"]).strip()

    def point(self, lang: Lang, name: str) -> str:
        """A key point in a sentence."""
        return str(self.texts(lang)["points"][name])

    def wrong(self, lang: Lang, name: str) -> str:
        """A wrong statement that the rubric knows, as it is often said."""
        return str(self.texts(lang)["wrong"][name])


@dataclass(frozen=True)
class ChoiceQuestion(Written):
    """One of several; the order in which they are shown depends on the seed."""

    right: str
    options: tuple[str, ...]

    def shown(self, seed: int) -> dict[str, str]:
        """Letter shown -> the option's own letter."""
        order = list(self.options)
        Random(f"{self.name}:{seed}").shuffle(order)
        return dict(zip(LETTERS, order, strict=False))

    def right_letter(self, seed: int) -> str:
        """The letter under which the right option is shown."""
        return next(letter for letter, option in self.shown(seed).items() if option == self.right)

    def text(self, lang: Lang, option: str) -> str:
        """An option."""
        return str(self.texts(lang)["options"][option][0])

    def why(self, lang: Lang, option: str) -> str:
        """Why it is right, or what is wrong with it."""
        return str(self.texts(lang)["options"][option][1])

    def chosen(self, text: str, seed: int) -> str:
        """The letter that an answer names; InputError for another text."""
        letter = text.strip().strip(".)）（(").lower()
        shown = self.shown(seed)
        if letter not in shown:
            raise InputError("answer", text.strip()[:60], f"one of {', '.join(shown)}")
        return letter


@dataclass(frozen=True)
class FixedQuestion(Written):
    """A numeric question whose parameters are given, with an introduction of its own."""

    question: NumericQuestion

    def ask(self, lang: Lang) -> str:
        """The question with its numbers."""
        return f"{self.texts(lang)['ask']} {self.question.ask(lang)}".strip()

    def remark(self, lang: Lang) -> str:
        """What the worked solution leads to."""
        return str(self.texts(lang)["remark"])


BankQuestion = OpenQuestion | ChoiceQuestion | FixedQuestion


@cache
def bank() -> dict[str, BankQuestion]:
    """Name -> question, in the order of the file."""
    return {name: _question(name, entry) for name, entry in _read("bank").items()}


def _question(name: str, entry: Mapping[str, Any]) -> BankQuestion:
    common = (name, entry["topic"], tuple(entry.get("claims", ())), entry.get("source", ""))
    if "right" in entry:
        return ChoiceQuestion(*common, right=entry["right"], options=tuple(_texts("en")[name]["options"]))
    if "kind" in entry:
        return FixedQuestion(*common, question=NumericQuestion(KINDS[entry["kind"]], entry["values"]))
    points = {point: tuple(patterns) for point, patterns in entry["points"].items()}
    wrong = {point: tuple(patterns) for point, patterns in entry.get("wrong", {}).items()}
    return OpenQuestion(*common, rubric=rubric.Rubric(points, wrong, entry["needed"]))


def _texts(lang: Lang) -> dict[str, Any]:
    return _read(f"bank_{lang}")


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("experiments.interview").joinpath(f"{name}.toml").read_text("utf-8"))
