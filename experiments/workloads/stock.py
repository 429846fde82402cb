"""The project's own prompt texts, by kind, as they stand in texts/*.txt.

A file has two parts: openers (what is asked, a line each) and pieces (what a prompt is filled up with). Pieces stand a
line each, or with blank lines between them when they have several lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# Every prompt begins with a number of its own, or two that open alike would share a prefix by accident.
HEADS = {
    "chat": "Message {}.",
    "code": "# Ticket {}",
    "summarise": "Document {}.",
    "long-doc": "Handbook {}.",
    "zh": "编号{}。",
}
JOINERS = {"chat": " ", "code": "\n\n", "summarise": "\n\n", "long-doc": "\n\n", "zh": ""}
STOCKS = tuple(HEADS)


@dataclass(frozen=True)
class Stock:
    """Texts of one kind; `head` has a place for a number."""

    head: str
    joiner: str
    openers: tuple[str, ...]
    pieces: tuple[str, ...]


@cache
def stock(kind: str) -> Stock:
    """The texts of a kind of STOCKS."""
    content = files("experiments.workloads").joinpath("texts", f"{kind}.txt").read_text("utf-8")
    openers, _, pieces = content.removeprefix("== openers\n").partition("== pieces\n")
    separator = "\n" if JOINERS[kind] in ("", " ") else "\n\n"
    return Stock(HEADS[kind], JOINERS[kind], tuple(openers.strip().split("\n")), tuple(pieces.strip().split(separator)))
