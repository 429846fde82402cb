"""The documents of the project as the tests read them: where they are, their fenced blocks and their inline code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language ("" without one), its text, and the line of prose right above it."""

    language: str
    text: str
    above: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = []
    for match in FENCE.finditer(text):
        before = [line for line in text[: match.start()].splitlines() if line.strip()]
        found.append(Block(match[2], match[3], before[-1] if before else ""))
    return found


def prose(text: str) -> str:
    """A document without its fenced blocks."""
    return FENCE.sub("", text)


def inline_code(text: str) -> list[str]:
    """What stands between single backticks outside of fenced blocks; a line break inside counts as a space."""
    return [" ".join(found.split()) for found in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(text))]
