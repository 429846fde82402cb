"""Numbers typed on the command line, with errors that name the option, the value and what is accepted."""

from __future__ import annotations

import math

from ledger.errors import InputError


def whole(option: str, text: str | None) -> int | None:
    """A whole number, or None when it was not given; its range is for the receiver to check."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(option, text, "a whole number") from None


def number(option: str, text: str) -> float:
    """A finite number; its range is for the receiver to check."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(option, text, "a number")
    return value
