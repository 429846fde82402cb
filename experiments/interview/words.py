"""The texts of the interview in English and Chinese: topics, units, kinds of numeric questions, mistakes.

They lie in words_en.toml and words_zh.toml; both are written, neither is translated. Knows how a number is printed in
them, and no question.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeGuard

from experiments.mistake_words import USUAL, usual_mistake
from ledger.errors import InputError

Lang = Literal["en", "zh"]
LANGUAGES: tuple[Lang, ...] = ("en", "zh")
DIGITS = 4  # significant ones, of a number that is not whole


@cache
def words(lang: Lang) -> dict[str, Any]:
    """All texts of a language: tables topic, unit, column, form, mistake, kind, say."""
    return tomllib.loads(files("experiments.interview").joinpath(f"words_{lang}.toml").read_text("utf-8"))


def kind_words(lang: Lang) -> dict[str, dict[str, str]]:
    """Kind -> its title, ask and solution."""
    found: dict[str, dict[str, str]] = words(lang)["kind"]
    return found


def topic_name(lang: Lang, topic: str) -> str:
    """A topic's name."""
    return str(words(lang)["topic"][topic])


def unit_name(lang: Lang, unit: str) -> str:
    """A unit as that language writes it."""
    return str(words(lang)["unit"].get(unit, unit))


def mistake_text(lang: Lang, name: str) -> str:
    """What went wrong, in a sentence."""
    return usual_mistake(lang, name) if name in USUAL else str(words(lang)["mistake"][name])


def column_name(lang: Lang, name: str) -> str:
    """The head of a table's column."""
    return str(words(lang)["column"][name])


def form_name(lang: Lang, form: str) -> str:
    """How a question is answered, in a word."""
    return str(words(lang)["form"][form])


def say(lang: Lang, key: str, **values: object) -> str:
    """One of the sentences that feedback is made of."""
    return filled(words(lang)["say"][key], values)


def checked_lang(text: str) -> Lang:
    """A language's name; InputError otherwise."""
    for lang in LANGUAGES:
        if text == lang:
            return lang
    raise InputError("lang", text, " or ".join(LANGUAGES))


def filled(template: str, values: Mapping[str, object]) -> str:
    """A template with its numbers put in as `number` prints them."""
    return template.format(**{name: _Shown(value) if _is_number(value) else value for name, value in values.items()})


def number(value: float) -> str:
    """Whole numbers in full with commas, others with four significant digits, never with an exponent."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    before = max(0, math.floor(math.log10(abs(value))) + 1) if abs(value) >= 1 else 0
    places = DIGITS - before if before else DIGITS - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class _Shown(float):
    """A number that a bare {name} prints readably; {name:spec} formats it as any float."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else number(float(self))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
