"""The diagrams of docs/architecture.md show the imports that are really there, between the packages that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks

PACKAGES = ("ledger", "core_engine", "experiments", "app")
DIAGRAMS = [
    block.text
    for block in blocks((ROOT / "docs" / "architecture.md").read_text("utf-8"))
    if block.language == "mermaid"
]


def nodes(diagram: str) -> dict[str, str]:
    """Id -> the package that a node stands for, which is its label where it has one."""
    labelled = dict(re.findall(r'(\w+)\["([\w.]+)"\]', diagram))
    return {name: labelled.get(name, name) for edge in arrows(diagram) for name in edge}


def arrows(diagram: str) -> set[tuple[str, str]]:
    """(from, to) of every arrow; `a --> b & c` is two of them."""
    found = re.findall(r"^\s*(\w+) --> (.*)$", re.sub(r'\["[\w.]+"\]', "", diagram), re.MULTILINE)
    return {(start, end.strip()) for start, ends in found for end in ends.split("&")}


@cache
def imports() -> dict[str, frozenset[str]]:
    """Module -> the dotted names that it imports, inside functions too."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): frozenset(imports_of(path)) for path in paths}


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def owner(name: str, shown: set[str]) -> str | None:
    """The most exact of the shown packages that a dotted name is in."""
    inside = [package for package in shown if name == package or name.startswith(f"{package}.")]
    return max(inside, key=len, default=None)


def real_arrows(shown: set[str]) -> set[tuple[str, str]]:
    """(importer, imported) between the shown packages."""
    found = set()
    for module, names in imports().items():
        own = owner(module, shown)
        found |= {(own, other) for name in names if own and (other := owner(name, shown)) and other != own}
    return found


def test_there_are_diagrams() -> None:
    assert len(DIAGRAMS) == 3


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda text: "-".join(sorted(nodes(text).values())[:2]))
def test_a_diagram_shows_the_imports_that_are_there(diagram: str) -> None:
    names = nodes(diagram)
    drawn = {(names[start], names[end]) for start, end in arrows(diagram)}
    assert drawn == real_arrows(set(names.values()))
    for package in names.values():
        assert (ROOT / package.replace(".", "/")).is_dir(), package
