"""One arm's metrics over its repeats, and the five curves' samples out of them. Pure functions over metrics JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from experiments.statistics import CurveSamples

# name, statistic, where the value lies in the metrics, which way is better, provenance
Curve = tuple[str, str, tuple[str, ...], str, str]
CURVES: tuple[Curve, ...] = (
    ("ttft_s", "p95", ("ttft_s", "p95"), "lower", "measured"),
    ("itl_s", "p95", ("itl_s", "p95"), "lower", "measured"),
    ("output_tokens_per_s", "mean", ("output_tokens_per_s",), "higher", "measured"),
    ("cost_per_request", "mean", ("cost_per_request",), "lower", "computed"),
)
# Where there are objectives: not one of a comparison's five, but what a ladder climbs by.
GOODPUT: Curve = ("goodput_rps", "mean", ("goodput_rps",), "higher", "measured")
# Counted over all repeats; everything else is the median repeat's.
SUMMED = ("n", "completed", "failed")


def over_repeats(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The metrics JSON of one arm: the median over its repeats, key by key; n, completed and failed are sums.

    A figure that no repeat has stays None. Texts and lists are the first repeat's. ValueError without repeats.
    """
    if not metrics:
        raise ValueError("no repeats")
    return {**_merge([dict(item) for item in metrics]), "repeats": len(metrics)}


def _merge(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: _merge_values(key, [item.get(key) for item in items]) for key in items[0]}


def _merge_values(key: str, values: list[Any]) -> Any:
    if key in ("config", "environment", "workload", "target", "in_other_terms"):
        return values[0]
    if any(isinstance(value, dict) for value in values):
        return _merge([value for value in values if isinstance(value, dict)])
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not numbers:
        return next((value for value in values if value is not None), None)
    if key in SUMMED:
        return sum(numbers)
    middle = median(numbers)
    return int(middle) if all(isinstance(value, int) for value in numbers) and middle == int(middle) else middle


def performance_curves(arms: Sequence[Sequence[dict[str, Any]]], more: Sequence[Curve] = ()) -> list[CurveSamples]:
    """The four curves that repeats measure and `more`, from arms[arm][repeat] metrics; pairs are repeats."""
    return [
        CurveSamples(
            name=name,
            statistic=statistic,
            better=better,
            baseline=[_at(metrics, path) for metrics in arms[0]],
            candidate=[_at(metrics, path) for metrics in arms[1]],
            provenance=provenance,
        )
        for name, statistic, path, better, provenance in (*CURVES, *more)
    ]


def _at(metrics: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = metrics
    for key in path:
        value = value[key]
    return None if value is None else float(value)
