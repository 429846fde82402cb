"""Chinese texts are set as Chinese: full-width punctuation, one term for one thing, one way to write a percentage."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.labs.words import WORDS
from experiments.mistake_words import USUAL

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for folder in ("app/i18n", "experiments")
    for pattern in ("zh.toml", "*_zh.toml", "*_zh.yaml")
    for path in (ROOT / folder).rglob(pattern)
)
HAN = "[一-鿿]"
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
HALF_WIDTH = re.compile(rf"{HAN}[,;:?!](?!\w)|{HAN}[,;:?!](?={HAN})|[,;:?!](?={HAN})|[;:?!] (?={HAN})|{HAN}\((?!\w*\))")
# What must not be said, because the same thing has another name on all other pages.
OTHER_TERMS = {
    "a percent sign has a blank before it": re.compile(r"[\d}]%"),
    "sequences are counted as 条": re.compile(r"[\d}一单每] ?路(?!由|径|线)"),
    "what planning finds is a 方案": re.compile(r"(?:最快的是|没有别的|找到)规划"),
}


def _texts(found: Any) -> Iterator[str]:
    """Every text in a tree; of a pair of patterns and words the words alone."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from _texts(value)
    elif isinstance(found, list):
        for value in found[1:] if len(found) == 2 and not re.search(HAN, str(found[0])) else found:
            yield from _texts(value)


def _read(path: Path) -> Any:
    text = path.read_text("utf-8")
    return yaml.safe_load(text) if path.suffix == ".yaml" else tomllib.loads(text)


def _all() -> Iterator[tuple[str, str]]:
    for path in FILES:
        for text in _texts(_read(path)):
            yield path.relative_to(ROOT).as_posix(), CODE.sub("", text)
    for name, pairs in {"experiments/labs/words.py": WORDS, "experiments/mistake_words.py": USUAL}.items():
        for _, text in pairs.values():
            yield name, text


def test_the_catalogues_are_found() -> None:
    named = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {"app/i18n/zh.toml", "experiments/interview/bank_zh.toml", "experiments/claims/claims_zh.yaml"} <= named
    assert sum(name.startswith("experiments/labs/content/") for name in named) > 20


def test_punctuation_between_chinese_is_full_width() -> None:
    assert [(name, found[0], text) for name, text in _all() if (found := HALF_WIDTH.search(text))] == []


@pytest.mark.parametrize("rule", OTHER_TERMS)
def test_one_thing_has_one_name(rule: str) -> None:
    wrong = OTHER_TERMS[rule]
    assert [(name, text[max(0, at.start() - 20) :][:40]) for name, text in _all() if (at := wrong.search(text))] == []
