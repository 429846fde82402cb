"""What is made of other figures: ratios, changes, which is larger, in which band a value lies.

Every function takes the figures named in `of` first. A figure that is missing (None) makes the result missing, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from experiments.statistics import percentile

Value = Any


def ratio(first: float, second: float) -> float | None:
    """first / second; missing where the second is 0."""
    return first / second if second else None


def change_pct(first: float, second: float) -> float | None:
    """How much the second is above the first, in % (negative: below)."""
    return 100 * (second / first - 1) if first else None


def difference(first: float, second: float) -> float:
    """first - second."""
    return first - second


def product(*values: float) -> float:
    """All multiplied."""
    return math.prod(values)


def total(*values: float) -> float:
    """All added."""
    return math.fsum(values)


def times(value: float, by: float) -> float:
    """value x by, a plain factor."""
    return value * by


def floor_ratio(first: float, second: float) -> int | None:
    """How many whole times the second goes into the first."""
    return math.floor(first / second) if second else None


def ceil_ratio(first: float, second: float) -> int | None:
    """How many of the second it takes to reach the first."""
    return math.ceil(first / second) if second else None


def largest(*values: Value) -> float | None:
    """The largest of figures, or of one list."""
    return max(_flat(values), default=None)


def smallest(*values: Value) -> float | None:
    """The smallest of figures, or of one list."""
    return min(_flat(values), default=None)


def mean(*values: Value) -> float | None:
    """The mean of figures, or of one list."""
    found = _flat(values)
    return math.fsum(found) / len(found) if found else None


def percentile_of(*values: Value, q: float) -> float | None:
    """A percentile of figures, or of one list, with linear interpolation."""
    return percentile(_flat(values), q)


def count(values: Sequence[Value]) -> int:
    """How many a list has."""
    return len(values)


def which_is_largest(*values: float, names: Sequence[str], within_pct: float = 0.0, tie: str = "") -> str:
    """The name of the largest, names in the order of `of`; `tie` when the runner-up is within so many % of it."""
    order = sorted(range(len(values)), key=lambda place: values[place], reverse=True)
    first, second = values[order[0]], values[order[1]]
    return tie if tie and first - second <= within_pct / 100 * abs(first) else names[order[0]]


def which_is_smallest(*values: float, names: Sequence[str], within_pct: float = 0.0, tie: str = "") -> str:
    """The name of the smallest; `tie` when the runner-up is within so many % of it."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    first, second = values[order[0]], values[order[1]]
    return tie if tie and second - first <= within_pct / 100 * abs(first) else names[order[0]]


def band(value: float, bounds: Sequence[float], names: Sequence[str]) -> str:
    """In which of len(bounds) + 1 bands a value lies: names[0] is below bounds[0]; a bound is of the band above."""
    return names[sum(value >= bound for bound in bounds)]


def equals(value: Value, other: Value, yes: str, no: str) -> str:
    """`yes` when both are the same, else `no`."""
    return yes if value == other else no


def _flat(values: Sequence[Value]) -> list[float]:
    found = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
    return [value for value in found if value is not None]


ARITHMETIC: dict[str, Callable[..., Value]] = {
    function.__name__: function
    for function in (
        ratio, change_pct, difference, product, total, times, floor_ratio, ceil_ratio, largest, smallest, mean,
        percentile_of, count, which_is_largest, which_is_smallest, band, equals,
    )
}  # fmt: skip
