"""Arms of a benchmark timed in turn, so that what else the machine does meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles

Arm = Callable[[], object]


def interleaved(arms: Mapping[str, Arm], rounds: int) -> dict[str, list[float]]:
    """Seconds of every arm in every round: A B, then B A, and so on, after one run of each that does not count."""
    for arm in arms.values():
        arm()
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name in arms if turn % 2 == 0 else reversed(arms):
            seconds[name].append(timed(arms[name]))
    return seconds


def timed(arm: Arm) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    arm()
    return time.perf_counter() - began


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """{"median", "low", "high"} of over / under of the same round; low and high are the 10th and 90th percentile."""
    paired = [a / b for a, b in zip(over, under, strict=True)]
    cuts = quantiles(paired, n=10, method="inclusive") if len(paired) > 1 else paired * 9
    return {"median": median(paired), "low": cuts[0], "high": cuts[-1]}


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
