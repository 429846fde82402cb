"""Reads what a user wrote about a workload into dataclasses; every error is one line with the field's path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from ledger.errors import InputError

MOST_TOKENS = 1_048_576  # of one prompt or answer
LARGEST = 1e300  # of a number: a whole one beyond a float is no number to compute with, and a NaN is in no range
Made = TypeVar("Made")


def whole(field: str, value: Any, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    accepted = f"a whole number from {low:,} to {high:,}"
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1:
        raise InputError(field, value, accepted)
    if not low <= value <= high:
        raise InputError(field, value, accepted)
    return int(value)


def number(field: str, value: Any, *, low: float = 0.0, inclusive: bool = False, unit: str = "") -> float:
    """A finite number above `low`, or from it on when inclusive."""
    accepted = f"a number {'from' if inclusive else 'above'} {low:g}{', in ' + unit if unit else ''}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise InputError(field, value, accepted)
    if value < low or (value == low and not inclusive):
        raise InputError(field, value, accepted)
    return float(value)


def one_of(field: str, value: Any, accepted: Any) -> str:
    """A text that is among the accepted ones."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(field, value, ", ".join(accepted))
    return value


def made(cls: type[Made], field: str, table: Mapping[str, Any]) -> Made:
    """The dataclass `cls` of a table. Its own checks name a field of it; the error that leaves here has the path."""
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            raise InputError(f"{field}.{name}", table[name], f"the fields {', '.join(known)}")
    for name, item in known.items():
        if name not in table and item.default is MISSING and item.default_factory is MISSING:
            raise InputError(f"{field}.{name}", "nothing", "a value")
    try:
        return cls(**table)
    except InputError as error:
        raise InputError(f"{field}.{error.field}", error.value, error.accepted) from None


def kind_of(field: str, value: Any, kinds: Mapping[str, type[Made]]) -> Made:
    """One of several dataclasses, named by the table's `kind`."""
    if not isinstance(value, Mapping):
        raise InputError(field, value, f"a table with kind = {', '.join(kinds)}")
    kind = one_of(f"{field}.kind", value.get("kind", "nothing"), kinds)
    return made(kinds[kind], field, {name: given for name, given in value.items() if name != "kind"})
