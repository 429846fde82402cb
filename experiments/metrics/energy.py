"""What energy the device took, by NVML. On a machine without such readings every figure is None, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.metrics.events import NS_PER_S, Record, num_output_tokens, successes, window_ns

COUNTER, TRAPEZOID = "nvml_energy_counter", "nvml_power_trapezoid"
# Readings further apart than this say nothing of what lay between them.
MOST_GAP_S = 1.0
OLDER = "recorded before telemetry was kept"

Readings = list[tuple[int, float]]


def energy(record: Record) -> dict[str, Any]:
    """{"joules","tokens_per_joule","mean_power_w","source","reason"} over the window of all rates.

    joules: of the whole device, idle power and other processes included, from the first arrival to the last token.
    source: NVML's energy counter where it has one, else its power readings by the trapezoid rule; values at the
    window's ends are interpolated. tokens_per_joule = tokens of successful requests / joules. reason: why there is no
    figure. Unit J, tokens/J, W.
    """
    telemetry, window = record.get("telemetry"), window_ns(record)
    if telemetry is None or telemetry["absent"] is not None:
        return _nothing(OLDER if telemetry is None else telemetry["absent"])
    if window is None:
        return _nothing("no request got a token")
    counted, powers = (_readings(telemetry, name) for name in ("energy_j", "power_w"))
    if not counted and not powers:
        missing = telemetry["missing"].get("power_w") or telemetry["ended"] or "no reading"
        return _nothing(f"this card reports no power: {missing}")
    holes = []
    for source, readings, over in ((COUNTER, counted, _risen), (TRAPEZOID, powers, _under)):
        hole = _hole(readings, *window)
        joules = over(_within(readings, *window)) if hole is None else 0.0
        if joules > 0:
            return _figures(record, joules, window, source)
        holes.append(hole or "the readings do not rise")
    ended = f" ({telemetry['ended']})" if telemetry["ended"] else ""
    return _nothing(f"{holes[0] if counted else holes[1]}{ended}")


def _nothing(reason: str) -> dict[str, Any]:
    return {"joules": None, "tokens_per_joule": None, "mean_power_w": None, "source": None, "reason": reason}


def _figures(record: Record, joules: float, window: tuple[int, int], source: str) -> dict[str, Any]:
    return {
        "joules": joules,
        "tokens_per_joule": sum(map(num_output_tokens, successes(record))) / joules,
        "mean_power_w": joules / ((window[1] - window[0]) / NS_PER_S),
        "source": source,
        "reason": None,
    }


def _readings(telemetry: dict[str, Any], name: str) -> Readings:
    values = telemetry["samples"].get(name) or []
    return [(at, value) for at, value in zip(telemetry["t_ns"], values, strict=False) if value is not None]


def _hole(readings: Readings, start: int, end: int) -> str | None:
    """Why the readings do not cover a span; None where they do."""
    if not readings or readings[0][0] > start or readings[-1][0] < end:
        last = (readings[-1][0] - start) / NS_PER_S if readings else 0.0
        return f"readings end at {max(0.0, last):.1f} of {(end - start) / NS_PER_S:.1f} s"
    widest = max((b - a for (a, _), (b, _) in pairwise(readings) if b > start and a < end), default=0) / NS_PER_S
    return f"no reading for {widest:.1f} s" if widest > MOST_GAP_S else None


def _within(readings: Readings, start: int, end: int) -> Readings:
    """The readings of a span that they cover, with one at each of its ends."""
    inside = [(at, value) for at, value in readings if start < at < end]
    return [(start, _at(readings, start)), *inside, (end, _at(readings, end))]


def _at(readings: Sequence[tuple[int, float]], moment: int) -> float:
    for (left, before), (right, after) in pairwise(readings):
        if left <= moment <= right:
            return before + (after - before) * (moment - left) / max(1, right - left)
    return readings[0][1]


def _risen(readings: Readings) -> float:
    return readings[-1][1] - readings[0][1]


def _under(readings: Readings) -> float:
    return sum((before + after) / 2 * (right - left) / NS_PER_S
               for (left, before), (right, after) in pairwise(readings))  # fmt: skip
