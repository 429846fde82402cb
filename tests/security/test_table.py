"""docs/security.md names a test for each thing that it promises, and those tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The rows of the table, without its head."""
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| what |", "| --- "))]


def test_every_row_has_a_test() -> None:
    assert len(rows()) > 20
    assert [row for row in rows() if not NAMED.search(row)] == []


def test_every_test_that_is_named_exists() -> None:
    named = {pair for row in rows() for pair in NAMED.findall(row)}
    files = {file: ast.parse((ROOT / file).read_text("utf-8")) for file in sorted({file for file, _ in named})}
    there = {
        (file, node.name)
        for file, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert named - there == set()


def test_every_test_of_this_folder_is_of_a_file_that_the_table_names() -> None:
    files = {file for row in rows() for file, _ in NAMED.findall(row)}
    own = {f"tests/security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert own - files == {"tests/security/test_table.py"}
