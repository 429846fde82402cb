"""The message catalogue: every text of the pages in English (en.toml) and Simplified Chinese (zh.toml), the same keys.

Names of curves, accounts and verdicts come from the report's catalogue, so that page and report say the same; what a
variable is, in English, from the registry, as the command line says it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from core_engine.variables import VARIABLES
from experiments.report.words import LANGUAGES, WORDS

LANGUAGE_NAMES = {"en": "English", "zh": "简体中文"}


@cache
def catalogue(lang: str) -> dict[str, str]:
    """All texts of one language, keys flattened with dots."""
    shared = {key: texts[LANGUAGES.index(lang)] for key, texts in WORDS.items()}
    own = tomllib.loads((Path(__file__).parent / f"{lang}.toml").read_text("utf-8"))
    helps = {f"help.{name}": entry.help for name, entry in VARIABLES.items()} if lang == "en" else {}
    return {**shared, **helps, **dict(_flat(own))}


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def translate(lang: str, key: str, **values: object) -> str:
    """The text of `key` with its placeholders filled in; KeyError for a key that is not there."""
    return catalogue(lang)[key].format(**values)
