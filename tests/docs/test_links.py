"""What the documents point at is there: files, headings, paths in the text, targets of make, pages of the workbench."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from app.navigation import GROUPS
from tests.docs.markdown import DOCUMENTS, ROOT, blocks, inline_code, prose

ROOTS = ("app/", "core_engine/", "experiments/", "ledger/", "benchmarks/", "tests/", "docs/", ".ci/")
PLACEHOLDER = re.compile(r"ID|CARD|[*{}<>]|bonus-token")
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> Iterator[str]:
    """Targets of a document's links and pictures that lead to no other site."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text("utf-8"))):
        if not re.match(r"https?:", target):
            yield target


def missing(path: Path) -> Iterator[str]:
    for target in links(path):
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        if not other.exists() or (anchor and anchor not in anchors(other)):
            yield target


@every_document
def test_links_lead_to_files_and_headings_that_are_there(path: Path) -> None:
    assert list(missing(path)) == []


@every_document
def test_paths_in_the_text_are_there(path: Path) -> None:
    found = inline_code(path.read_text("utf-8"))
    words = {word.strip(",;") for text in found for word in text.split() if word.startswith(ROOTS)}
    new = set(re.findall(r"`([^`]+)` \(new\)", path.read_text("utf-8")))
    named = {word.partition("::")[0] for word in words - new if not PLACEHOLDER.search(word)}
    assert sorted(word for word in named if not (ROOT / word).exists()) == []


@every_document
def test_targets_of_make_are_there(path: Path) -> None:
    text = path.read_text("utf-8")
    named = {code for code in inline_code(text) if re.fullmatch(r"make [\w-]+", code)}
    named |= set(re.findall(r"^make [\w-]+", "\n".join(block.text for block in blocks(text)), re.MULTILINE))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {name.removeprefix("make ") for name in named} <= targets


def test_every_page_has_a_section_of_its_own() -> None:
    titles = tomllib.loads((ROOT / "app" / "i18n" / "en.toml").read_text("utf-8"))["nav"]
    pages = [titles[name] for group in GROUPS.values() for name in group]
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "workbench.md").read_text("utf-8"), re.MULTILINE)
    assert sections[1:] == pages


def test_every_lab_that_is_recommended_is_there() -> None:
    text = (ROOT / "docs" / "learning.md").read_text("utf-8")
    labs = {path.name for path in (ROOT / "experiments" / "labs" / "content").iterdir() if path.is_dir()}
    rows = "\n".join(line for line in text.splitlines() if re.match(r"\| \d|Short of time", line))
    named = {code for code in inline_code(rows) if not code.startswith("trilemma")}
    assert named and named <= labs


@every_document
def test_what_the_python_examples_import_is_there(path: Path) -> None:
    for block in blocks(path.read_text("utf-8")):
        if block.language != "python" or "(new)" in block.above:
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom):
                module = import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names)
