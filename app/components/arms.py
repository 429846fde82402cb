"""The names of the two arms, as every section of the page writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def arm_names(values: Sequence[Any]) -> tuple[str, str]:
    """The values of baseline and candidate as text, told apart in an A/A comparison."""
    first, second = (str(value) for value in values)
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")
