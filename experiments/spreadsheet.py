"""Texts in CSV files that a spreadsheet opens: what begins like a formula is marked as text."""

from __future__ import annotations

from typing import Any

# Begins a formula, full-width forms too.
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def safe(text: str) -> str:
    """The text with an apostrophe before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.lstrip().startswith(FORMULA) or text.startswith(("\t", "\r", "\n")) else text


def safe_cell(value: Any) -> Any:
    """A cell's value: a text made safe, anything else as it is."""
    return safe(value) if isinstance(value, str) else value
