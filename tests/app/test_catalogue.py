"""One catalogue: the same keys and placeholders in both languages, every key used exists, no text outside of it."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.charts import WORD_KEYS
from app.i18n import catalogue, translate
from core_engine.variables import VARIABLES
from experiments.workloads import WORKLOADS

APP = Path(__file__).resolve().parents[2] / "app"
PAGES = sorted(path for path in APP.rglob("*.py") if "charts" not in path.parts)
# What takes text that a reader sees: streamlit's elements, and our own that pass it on.
SHOWING = {
    *("alert", "button", "caption", "checkbox", "code", "download_button", "draw", "error", "expander", "header"),
    *("heading", "info", "link_button", "markdown", "metric", "number_input", "page_link", "popover", "radio"),
    *("segmented_control", "selectbox", "slider", "subheader", "success", "text", "text_input", "title", "toast"),
    *("toggle", "warning", "write", "Column", "Page", "ProgressColumn"),
}
SHOWN_ARGUMENTS = {"label", "body", "help", "placeholder", "title", "alt", "description", "caption"}
# Names and units that are the same in every language.
NAMES = {"Trilemma", "%", "ms"}
CJK = re.compile(r"[一-鿿]")
MARKS = "。，：；！？、（）“”"


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_keys() -> None:
    assert set(catalogue("en")) == set(catalogue("zh"))


def test_every_text_has_the_same_placeholders_in_both_languages_and_is_not_empty() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    assert [key for key in english if not (english[key].strip() and chinese[key].strip())] == []
    assert [key for key in english if fields(english[key]) != fields(chinese[key])] == []


def test_every_variable_and_workload_is_named_and_explained() -> None:
    for language in ("en", "zh"):
        texts = catalogue(language)
        for name, entry in VARIABLES.items():
            assert {f"var.{name}", f"why.{name}", f"trap.{name}", f"help.{name}"} <= set(texts)
            assert not entry.unit or f"unit.{entry.unit}" in texts
        assert {f"workload.{name}" for name in WORKLOADS} <= set(texts)
        assert {f"value.{name}" for name in VARIABLES["batching"].choices} <= set(texts)
    for name in VARIABLES:
        assert CJK.search(catalogue("zh")[f"why.{name}"]) and CJK.search(catalogue("zh")[f"trap.{name}"])


def test_the_charts_find_their_words() -> None:
    for language in ("en", "zh"):
        texts = catalogue(language)
        assert [key for key in WORD_KEYS if f"chart.{key}" not in texts and key not in texts] == []


def test_a_missing_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        translate("en", "no.such.key")


def literal_keys() -> Iterator[tuple[str, str]]:
    """(place, key) of every `t("key")`, and of every string that is passed on to it."""
    for path in PAGES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t" and node.args:
                for key in ast.walk(node.args[0]):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and key not in fstring_parts(node):
                        yield f"{path.name}:{node.lineno}", key.value


def fstring_parts(node: ast.AST) -> list[ast.AST]:
    return [part for inner in ast.walk(node) if isinstance(inner, ast.JoinedStr) for part in ast.walk(inner)]


def test_every_key_that_the_pages_ask_for_exists() -> None:
    texts = catalogue("en")
    # A constant inside an expression such as spec["variable"] is a field's name, not a key.
    missing = [(at, key) for at, key in literal_keys() if key not in texts and re.fullmatch(r"\w+(\.\w+)+", key)]
    assert missing == []


def shown_literals() -> Iterator[tuple[str, str]]:
    """(place, text) of every literal that a call which shows text is given directly."""
    for path in PAGES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in SHOWING:
                continue
            shown = [*node.args[:1], *(word.value for word in node.keywords if word.arg in SHOWN_ARGUMENTS)]
            for argument in shown:
                yield from ((f"{path.name}:{node.lineno}", text) for text in literal_text(argument))


def literal_text(node: ast.expr) -> Iterator[str]:
    """The literal words of a string, of an f-string's fixed parts, and of either side of a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from (part.value for part in node.values if isinstance(part, ast.Constant) and str(part.value).strip())
    elif isinstance(node, ast.IfExp):
        yield from literal_text(node.body)
        yield from literal_text(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from literal_text(node.left)
        yield from literal_text(node.right)


def words_of(text: str) -> str:
    """What is left of a literal when markdown, colour names and query parameters are taken away."""
    plain = re.sub(r":?[a-z]*-badge\[|:[a-z]+\[|\?run=|&lang=|[^\w一-鿿 ]", " ", text)
    return " ".join(word for word in plain.split() if not word.isdigit() and word != "n")


def test_no_text_for_the_reader_is_outside_of_the_catalogue() -> None:
    found = [(at, text) for at, text in shown_literals() if words_of(text) and text not in NAMES]
    assert found == []


def test_the_check_of_literals_sees_what_it_should() -> None:
    call = ast.parse('st.markdown(f"**Hello {name}**")').body[0].value  # type: ignore[attr-defined]
    assert any(words_of(text) for text in literal_text(call.args[0]))
    assert not any(words_of(text) for text in literal_text(ast.parse('f":gray-badge[{x} **{y}**]"').body[0].value))  # type: ignore[attr-defined]


def test_no_chinese_outside_of_the_catalogue() -> None:
    for path in PAGES:
        if path.parent.name != "i18n":
            assert not CJK.search(path.read_text("utf-8")), path


def left_open(text: str) -> list[str]:
    """Bold parts whose closing ** stands after a full-width mark and before a letter: CommonMark doesn't take it as an
    end, so the stars stay on the page.
    """
    found: list[str] = []
    for line in text.splitlines():
        parts = line.split("**")
        pairs = zip(parts[1::2], parts[2::2], strict=False)
        found += [bold for bold, after in pairs if bold[-1:] in MARKS and re.match(rf"[^\s{MARKS}]", after)]
    return found


def test_bold_chinese_is_closed_before_its_punctuation() -> None:
    lessons = [path.read_text(encoding="utf-8") for path in APP.parent.glob("experiments/labs/content/*/zh.toml")]
    assert lessons and left_open("**陷阱：**拿灰度") == ["陷阱："] and left_open("**陷阱**：拿灰度") == []
    assert [bold for text in (*catalogue("zh").values(), *lessons) for bold in left_open(text)] == []
