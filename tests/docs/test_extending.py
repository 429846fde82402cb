"""docs/extending.md is what it says: its blocks, applied to a copy of the tree, are all that the examples need.

Nobody edits what a guide does not name. The checks that the guides name run in one copy that has all of them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks

GUIDE = ROOT / "docs" / "extending.md"
LAB_GUIDE = ROOT / "docs" / "labs.md"
LAB = "experiments/labs/content/bonus-token"
PACKAGES = ("ledger", "core_engine", "experiments", "app")
# The beginning of a guide's row in the table.
ROWS = {
    "A variable": "| a variable |",
    "A proposer": "| a proposer",
    "A weight format": "| a way to make",
    "A lab": "| a lab |",
}
GUIDES = tuple(ROWS)
SOURCES = 5  # files beside the test that a guide may take at most


@dataclass(frozen=True)
class Change:
    """A block of a guide: lines to put in the place of others in a file, or a whole new file (old is then None)."""

    path: str
    old: str | None
    new: str


def guide(title: str) -> str:
    """The text of one guide."""
    return re.split(r"^## ", GUIDE.read_text("utf-8"), flags=re.MULTILINE)[1 + guide_titles().index(title)]


def guide_titles() -> list[str]:
    return re.findall(r"^## (.*)$", GUIDE.read_text("utf-8"), re.MULTILINE)


def changes(title: str) -> list[Change]:
    """The blocks of a guide in order; one without a path above it is of the file before."""
    found: list[Change] = []
    for block in blocks(guide(title)):
        named = re.match(r"^`([\w/.-]+)`", block.above)
        path = named[1] if named else found[-1].path if found else ""
        if block.language == "diff":
            found.append(Change(path, *sides(block)))
        elif "(new)" in block.above:
            found.append(Change(path, None, block.text))
    return found


def sides(block: Block) -> tuple[str, str]:
    """The lines of a diff before and after."""
    lines = [line or " " for line in block.text.splitlines()]
    assert {line[0] for line in lines} <= {" ", "+", "-"}, block.text
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in ((" ", "-"), (" ", "+")))
    return old, new


def checks(title: str) -> list[str]:
    """The commands under "Check with:"."""
    return [line for block in blocks(guide(title)) if block.above == "Check with:" for line in block.text.splitlines()]


def apply(change: Change, tree: Path) -> None:
    """Make a change in a copy of the tree."""
    path = tree / change.path
    if change.old is None:
        assert not path.exists(), f"{change.path} is there already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.new, "utf-8")
        return
    text = path.read_text("utf-8")
    assert text.count(change.old) == 1, f"{change.path} has this {text.count(change.old)} times:\n{change.old}"
    path.write_text(text.replace(change.old, change.new), "utf-8")


def copied(tree: Path) -> Path:
    """The packages, the tests and what they are configured by. Files of weights are links: nothing writes to them."""
    ignore = shutil.ignore_patterns("__pycache__", "*.safetensors")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for path in ROOT.glob("core_engine/**/*.safetensors"):
        (tree / path.relative_to(ROOT)).symlink_to(path)
    shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
    return tree


def with_lab(tree: Path) -> None:
    """The example of docs/labs.md where a contributor would put it."""
    found = re.findall(
        r"^`(\w+\.toml)`:\n\n```toml\n(.*?)^```$", LAB_GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    for name, text in found:
        apply(Change(f"{LAB}/{name}", None, text), tree)
    assert len(found) == 3


def one_run(suites: list[str]) -> str:
    """Several commands of pytest as one, so that libraries are loaded once; -k narrows the files beside it alone."""
    files, narrowed = [], []
    for suite in suites:
        words = suite.split()[3:]
        named = [word for word in words if word.startswith("tests/")]
        files += named
        if "-k" in words:
            narrowed += [f"({words[words.index('-k') + 1]} or not {Path(name).stem})" for name in named]
    chosen = f" -k '{' and '.join(narrowed)}'" if narrowed else ""
    return f"python -m pytest -q -p no:cacheprovider {' '.join(dict.fromkeys(files))}{chosen}"


@pytest.mark.parametrize("title", GUIDES)
def test_each_guide_fits_the_tree_as_it_is_and_is_as_small_as_the_table_says(title: str, tmp_path: Path) -> None:
    made = changes(title)
    for path in {change.path for change in made if change.old is not None}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    for change in made:
        apply(change, tmp_path)
    sources = {change.path for change in made if not change.path.startswith("tests/")}
    row = next(line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith(ROWS[title]))
    promised = int(row.split("|")[2])
    assert (len(sources) or 3) == promised <= SOURCES
    assert checks(title)


def test_what_the_guides_add_works_in_a_copy_of_the_tree(tmp_path: Path) -> None:
    tree = copied(tmp_path / "tree")
    for title in GUIDES:
        for change in changes(title):
            apply(change, tree)
    with_lab(tree)
    commands = [command for title in GUIDES for command in checks(title)]
    suites = [command for command in commands if "pytest" in command]
    others = [command for command in commands if "pytest" not in command]
    changed = [change.path for title in GUIDES for change in changes(title) if change.path.endswith(".py")]
    style = [f"python -m ruff {how} {' '.join(changed)}" for how in ("check", "format --check")]
    for command in (*style, one_run(suites), *others):
        words = [sys.executable, *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
