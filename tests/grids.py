"""Grids of which the ordinary suite runs a representative part and the slow one the rest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def representative(*axes: Iterable[Any], times: int = 1) -> list[Any]:
    """All combinations as parameters; those beyond `times` diagonals are slow. Every value is on each diagonal."""
    values = [list(axis) for axis in axes]
    ordinary = {
        tuple((step + turn * place) % len(axis) for place, axis in enumerate(values))
        for turn in range(times)
        for step in range(max(map(len, values)))
    }
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(values, places, strict=True)),
            marks=() if places in ordinary else pytest.mark.slow,
        )
        for places in product(*(range(len(axis)) for axis in values))
    ]
