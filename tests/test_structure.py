"""Files stay small enough to be read in one sitting; a package says in its __init__ what others may take from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 500
WRITTEN = ("*.py", "*.h", "*.cpp", "*.css")
LIBRARIES = ("ledger", "core_engine", "experiments")
FOLDERS = (*LIBRARIES, "app", "benchmarks", "tests")
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT)).replace("/", ".")
    for top in LIBRARIES
    for path in (ROOT / top).rglob("__init__.py")
    if path.parent.name != top
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_source_file_is_longer_than_500_lines(folder: str) -> None:
    files = [path for pattern in WRITTEN for path in (ROOT / folder).rglob(pattern)]
    assert files
    lines = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def _taken(text: str) -> Iterator[tuple[str, str]]:
    """(module, name) of every `from module import name` in a source, anywhere in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def _from(package: str, module: str, name: str) -> str | None:
    """What is taken from a package: a name of its own, or the module of it that is gone through."""
    if module == package:
        return name
    return module.removeprefix(f"{package}.").partition(".")[0] if module.startswith(f"{package}.") else None


def _surface(package: str) -> tuple[str | None, set[str]]:
    """(docstring, __all__) of a package's __init__, without importing it."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    stated = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return ast.get_docstring(tree), set(ast.literal_eval(stated[0])) if stated else set()


def test_what_others_take_from_a_package_is_stated_in_its_all() -> None:
    surfaces = {package: _surface(package) for package in PACKAGES}
    assert [package for package, (docstring, _) in surfaces.items() if not docstring] == []
    missing = set()
    for path in (path for top in (*LIBRARIES, "app", "benchmarks") for path in (ROOT / top).rglob("*.py")):
        inside = str(path.parent.relative_to(ROOT)).replace("/", ".") + "."
        for module, name in _taken(path.read_text("utf-8")):
            for package in PACKAGES:
                taken = None if inside.startswith(f"{package}.") else _from(package, module, name)
                if taken is not None and taken not in surfaces[package][1]:
                    missing.add(f"{package}.__all__ lacks {taken}, which {path.relative_to(ROOT)} takes")
    assert sorted(missing) == []


SKIPS = {f"pytest.{name}" for name in ("skip", "xfail", "importorskip", "mark.skip", "mark.skipif", "mark.xfail")}


def _unexplained_skips(path: Path) -> Iterator[str]:
    """Where a test is skipped, or expected to fail, and no reason is given."""
    text = path.read_text("utf-8")
    if not re.search(r"pytest\.[\w.]*(skip|xfail)", text):
        return
    tree = ast.parse(text)
    calls = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        named = isinstance(node, ast.Attribute) and ("skip" in node.attr or "xfail" in node.attr)
        if named and (name := ast.unparse(node)) in SKIPS:
            call = calls.get(node)
            given = call is not None and any(word.arg == "reason" for word in call.keywords)
            if not given and not (call is not None and call.args and name in ("pytest.skip", "pytest.xfail")):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


def test_every_skipped_test_says_why_and_nothing_is_left_to_do() -> None:
    assert [found for path in (ROOT / "tests").rglob("*.py") for found in _unexplained_skips(path)] == []
    marks = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
    files = [path for folder in FOLDERS for pattern in WRITTEN for path in (ROOT / folder).rglob(pattern)]
    files += (ROOT / "docs").glob("*.md")
    assert [str(path.relative_to(ROOT)) for path in files if marks.search(path.read_text("utf-8"))] == []


def test_what_a_package_states_is_there() -> None:
    for package in PACKAGES:
        for name in _surface(package)[1]:
            path = ROOT / package.replace(".", "/") / name
            there = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
            assert there or hasattr(import_module(package), name), f"{package}.{name}"
