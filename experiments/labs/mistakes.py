"""The usual mistakes behind a wrong number: what each would have given, so that the grader can name the one made.

Owns the arithmetic of the general ones. Words of the usual ones are in experiments/mistake_words.py; a lab adds its
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from experiments.labs.quantities import convert, dimension_of

CLOSE = 0.005  # how near an answer has to be to the mistake's value


def mistake_behind(
    given: float, right: float, unit: str, named: Mapping[str, float | None], tolerance: float = CLOSE
) -> str | None:
    """The name of the mistake that gives `given` where `right` is asked, both in `unit`; None when none does.

    named: the question's own, by name; they go before the general ones. What lies within `tolerance` of the right
    answer is no mistake.
    """
    for name, value in (*named.items(), *_general(right, unit)):
        if value is None or not math.isfinite(value):
            continue
        if _near(given, value, CLOSE) and not _near(value, right, max(tolerance, CLOSE)):
            return name
    return None


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other))


def _general(right: float, unit: str) -> Iterator[tuple[str, float]]:
    """(name, value) of the mistakes that any answer in this unit may hold."""
    if right == 0:
        return
    dimension = dimension_of(unit)
    if dimension == "bytes":
        power = min(4, max(1, int(math.log10(max(1.0, abs(convert(right, unit, "B")))) // 3)))
        gap = 1.024**power
        yield from (("gb_for_gib", right * gap), ("gb_for_gib", right / gap))
        yield from (("bits_for_bytes", right * 8), ("bits_for_bytes", right / 8))
    yield from (("factor_2", right * 2), ("factor_2", right / 2))
    if dimension in ("bytes", "seconds", "bytes/s", "FLOP", "FLOP/s"):
        yield from (("thousand", right * 1000), ("thousand", right / 1000))
    if dimension == "ratio" and unit:
        share = right if unit == "x" else right / 100
        back = 1.0 if unit == "x" else 100.0
        yield ("inverse", back / share)
        yield ("ratio_for_change", (share - 1) * back if unit == "x" else (share + 1) * back)
        yield from (("percent_for_share", right * 100), ("percent_for_share", right / 100))
    yield ("sign", -right)
