"""Bytes that Python objects take."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

SMALL_INTS = range(-5, 257)  # CPython has each of these once


def deep_bytes(value: Any) -> int:
    """Size of lists, tuples, dicts and numbers with all they hold; texts are names that many share."""
    if isinstance(value, str) or value is None or (isinstance(value, int) and value in SMALL_INTS):
        return 0
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    return sys.getsizeof(value) + sum(map(deep_bytes, inner))
