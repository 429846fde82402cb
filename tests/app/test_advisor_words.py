"""Every sentence of the advisor's causes has its Chinese, found by reading the causes themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.i18n.phrases import in_language
from experiments.advisor import causes
from experiments.advisor.advice_flags import SPELLED
from experiments.advisor.evidence import NUMBERS, how_to_know

CJK = re.compile(r"[一-鿿]")
FOLDER = Path(causes.__file__).parent


def sentences() -> Iterator[str]:
    """Of every change: why, refuted_by; of every bound: its text."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            given = {word.arg: word.value for word in node.keywords}
            found = [given.get("why"), given.get("refuted_by")] if node.func.id == "Change" else []
            found += node.args[1:2] if node.func.id == "Bound" else []
            yield from (part.value for part in found if isinstance(part, ast.Constant) and isinstance(part.value, str))


def evidence() -> Iterator[str]:
    """The lines of evidence with numbers put in."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "line" and node.args:
                yield from _filled(node.args[0])
            elif node.func.id in ("told", "some") and len(node.args) > 2 and isinstance(node.args[2], ast.Constant):
                yield str(node.args[2].value).format(_number(str(node.args[2].value)))


def _number(words: str) -> str:
    shares = ("in use", "utilised", "of the", "what is read", "fullest", "of its", "of that")
    return "34 %" if any(word in words for word in shares) else "12"


def _filled(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else _value(ast.unparse(part)) for part in node.values
        )


def _value(code: str) -> str:
    """What stands in a hole: a share, a time, a setting or a number."""
    if "percent(" in code:
        return "34 %"
    if "seconds(" in code:
        return "2.5 s"
    return {"{policy}": "static", "{what}": "bandwidth", "{few_bits}": "weights=w8a8"}.get(code, "12")


def test_there_are_sentences_to_look_at() -> None:
    assert len(list(sentences())) > 90 and len(list(evidence())) > 40


@pytest.mark.parametrize("text", sorted(set(sentences())))
def test_why_what_would_refute_it_and_where_it_applies_are_chinese(text: str) -> None:
    assert CJK.search(in_language("zh", text)) and not re.search(
        r"[a-z]{4,} [a-z]{3,} [a-z]{3,}", in_language("zh", text)
    )
    assert CJK.search(in_language("zh", f"C28: {text}")), text


@pytest.mark.parametrize("text", sorted(set(evidence())))
def test_evidence_is_chinese(text: str) -> None:
    assert CJK.search(in_language("zh", text)), text


def test_what_measures_a_number_is_chinese() -> None:
    told = {name: in_language("zh", how_to_know(name)) for name in (*NUMBERS, "objectives")}
    commands = re.compile(r"^[\w.]+(, \w+)?: trilemma [\w ]+[A-Z-]")  # a command is itself in every language
    assert [text for text in told.values() if not CJK.search(text) and not commands.match(text)] == []


def test_notes_about_other_engines_are_chinese() -> None:
    spelled = {note for engines in SPELLED.values() for _, note in engines.values() if note}
    notes = {note for note in spelled if not note.startswith("--")}  # an option is itself in every language
    assert [note for note in notes if not CJK.search(in_language("zh", note))] == []
