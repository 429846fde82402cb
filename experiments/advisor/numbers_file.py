"""Numbers typed into a file: JSON or TOML in the form of docs/advisor.md, read into evidence."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from experiments.advisor.evidence import MOST_BYTES, TYPED, Evidence, evidence_of
from experiments.advisor.from_run import with_extras
from ledger.errors import InputError


def evidence_from_file(path: Path, slo: str | None = None) -> Evidence:
    """The evidence of a .json or .toml file; slo goes before the file's own. InputError for what is wrong in it."""
    return evidence_of(with_extras(read_document(path)), TYPED, slo=slo)


def read_document(path: Path) -> dict[str, Any]:
    """The one object that the file holds."""
    accepted = "a .json or .toml file with one object of numbers"
    if path.suffix.lower() not in (".json", ".toml"):
        raise InputError("--numbers", str(path), accepted)
    text = read_text("--numbers", path)
    try:
        found = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("--numbers", str(path), f"{accepted} ({error})") from None
    if not isinstance(found, dict):
        raise InputError("--numbers", str(path), accepted)
    return found


def read_text(option: str, path: Path) -> str:
    """A file's text; InputError where it is not there, not text, or too large."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(option, str(path), f"a file of at most {MOST_BYTES // 2**20} MiB")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(option, str(path), f"a text file that can be read ({reason})") from None
