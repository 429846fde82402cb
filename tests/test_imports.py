"""The four packages import in one direction only, and the lower ones stay free of heavy or page libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = ["ledger", "core_engine", "experiments", "app"]
FORBIDDEN = {
    "ledger": {"torch", "streamlit", "numpy", "pandas", "transformers"},
    "core_engine": {"streamlit", "pandas", "altair", "pydantic"},
    "experiments": {"streamlit", "altair"},
    "app": {"torch"},
}


def imports_of(path: Path) -> set[str]:
    """Top-level names imported anywhere in a file, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_down_only(package: str) -> None:
    above = set(ORDER[ORDER.index(package) + 1 :])
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = imports_of(path) & (above | FORBIDDEN[package])
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_command_line_imports_without_page_libraries() -> None:
    block = "import sys\nfor name in ('streamlit', 'altair', 'pydantic'): sys.modules[name] = None\n"
    code = block + "import experiments.cli.verbs as cli, core_engine.engine, ledger; cli.command_line()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_pages_load_without_torch() -> None:
    views = sorted(f"app.views.{path.stem}" for path in (ROOT / "app" / "views").glob("[a-z]*.py"))
    code = f"import sys, {', '.join(views)}\nprint([n for n in ('torch', 'transformers') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_no_two_test_files_are_imported_under_one_name():
    found = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists())
    assert [name for name, times in found.items() if times > 1 and name != "conftest.py"] == []
