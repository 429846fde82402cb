"""Text for the independent draft: what people wrote that lies on every machine with the project, or the user's own.

By default the documentation and sources of Python's standard library and of the installed packages, and the project's
calibration text. Nothing of it was written by the target.
"""

from __future__ import annotations

import ast
import hashlib
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core_engine.quant.calibrate import TEXT_FILE
from ledger.errors import InputError

MOST_OF_A_FILE = 60_000  # characters: one long table must not be a tenth of all
CODE_SHARE = 0.25  # of all characters that are source code rather than prose


@dataclass(frozen=True)
class TrainingText:
    """Documents, and in a few words where they are from. digest tells them from others."""

    documents: tuple[str, ...]
    source: str

    @property
    def digest(self) -> str:
        """SHA-256 of all documents."""
        whole = hashlib.sha256()
        for document in self.documents:
            whole.update(document.encode())
        return whole.hexdigest()


def text_of(path: Path) -> TrainingText:
    """The user's file, or the *.txt, *.md, *.rst and *.py files of a directory; InputError when there is nothing."""
    files = _under(path, ("txt", "md", "rst", "py")) if path.is_dir() else [path]
    documents = tuple(text for file in files if (text := _read(file)))
    if not documents:
        raise InputError("text", str(path), "a text file in UTF-8 that is not empty, or a directory with some")
    return TrainingText(documents, str(path))


def installed_text(characters: int, seed: int) -> TrainingText:
    """About so many characters of documentation and code of this Python and its packages, chosen by the seed."""
    folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    files = [file for folder in folders for file in _under(folder, ("py", "md", "rst", "txt"))]
    random.Random(seed).shuffle(files)
    documents, taken = [TEXT_FILE.read_text("utf-8")], {"prose": 0.0, "code": 0.0}
    limits = {"prose": characters * (1 - CODE_SHARE), "code": characters * CODE_SHARE}
    for file in files:
        text = _read(file)
        for kind, part in _parts(file, text):
            if taken[kind] < limits[kind]:
                documents.append(part)
                taken[kind] += len(part)
        if all(taken[kind] >= limits[kind] for kind in limits):
            break
    return TrainingText(tuple(documents), "documentation and sources of the installed Python and its packages")


def _parts(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """Prose is what documents say and docstrings; the rest of a source file is code."""
    if file.suffix != ".py":
        yield "prose", text
        return
    yield "code", text
    prose = "\n\n".join(_docstrings(text))
    if len(prose) > 200:
        yield "prose", prose


def _docstrings(source: str) -> list[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, places)]
    return [text for text in found if text and len(text) > 40]


def _under(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(file for suffix in suffixes for file in folder.rglob(f"*.{suffix}") if file.is_file())


def _read(file: Path) -> str:
    """The beginning of a file; nothing of one that can't be read as text."""
    try:
        return file.read_text("utf-8")[:MOST_OF_A_FILE].strip()
    except (OSError, UnicodeDecodeError):
        return ""
