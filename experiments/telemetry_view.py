"""The telemetry of one record as small multiples: what NVML said, in units to read, on the time axis of the run.

Knows no page and no language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_engine.telemetry import FIELDS, throttle_names
from experiments.metrics.energy import energy
from experiments.metrics.events import NS_PER_S, Record, emissions

GIB, MEGA = 2**30, 1e6
MOST_POINTS = 400
LATENCY, LARGEST_GAP = "latency", "largest_gap"
# panel -> its fields, and what their values are divided by
PANELS: dict[str, tuple[tuple[str, ...], float]] = {
    "power": (("power_w",), 1),
    "utilisation": (("gpu_utilisation_pct", "memory_utilisation_pct"), 1),
    "memory": (("memory_used_bytes",), GIB),
    "clocks": (("sm_clock_mhz", "memory_clock_mhz"), 1),
    "pcie": (("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"), MEGA),
    "temperature": (("temperature_c",), 1),
}
HELD_DOWN = {
    "software_power_cap", "hardware_slowdown", "sync_boost", "software_thermal_slowdown", "hardware_thermal_slowdown",
    "hardware_power_brake",
}  # fmt: skip
OLDER, ON_A_CPU = "older", "cpu"

Line = list[tuple[float, float | None]]


@dataclass(frozen=True)
class Panel:
    """One small chart: a line of (s, value) for each field that the card reports; None interrupts a line."""

    name: str
    lines: Mapping[str, Line]


@dataclass(frozen=True)
class TelemetryView:
    """absent: OLDER, ON_A_CPU or NVML's reason, then there is nothing else. energy: as metrics/energy.py has it.

    held_down: reason of throttling -> share of the samples; held_share: of any of them, None where not reported.
    """

    absent: str | None
    energy: Mapping[str, Any]
    device: str = ""
    rate_per_s: float = 0.0
    panels: tuple[Panel, ...] = ()
    missing: tuple[str, ...] = ()
    ended: str | None = None
    held_down: Mapping[str, float] = field(default_factory=dict)
    held_share: float | None = None


def telemetry_view(record: Record) -> TelemetryView:
    """Everything that the page draws of one record's telemetry."""
    found, spent = record.get("telemetry"), energy(record)
    if found is None:
        return TelemetryView(OLDER, spent)
    if found["absent"] is not None:
        return TelemetryView(ON_A_CPU if found["absent"].startswith("no CUDA device") else found["absent"], spent)
    times_s = [at / NS_PER_S for at in found["t_ns"]]
    samples = found["samples"]
    panels = [Panel(LATENCY, {LARGEST_GAP: largest_gaps(record)})]
    for name, (fields, unit) in PANELS.items():
        lines = {one: _line(times_s, samples[one], unit) for one in fields if samples.get(one) is not None}
        if lines:
            panels.append(Panel(name, lines))
    reasons = Counter(
        reason for bits in samples.get("throttle_reasons") or () if bits is not None for reason in _held_down(bits)
    )
    known = [bits for bits in samples.get("throttle_reasons") or () if bits is not None]
    return TelemetryView(
        absent=None,
        energy=spent,
        device=found["device"] or "",
        rate_per_s=_rate(times_s),
        panels=tuple(panels),
        missing=tuple(name for name in FIELDS if samples.get(name) is None),
        ended=found["ended"],
        held_down={reason: number / len(known) for reason, number in reasons.most_common()},
        held_share=sum(bool(_held_down(bits)) for bits in known) / len(known) if known else None,
    )


def _held_down(bits: float) -> list[str]:
    return [name for name in throttle_names(int(bits)) if name in HELD_DOWN]


def _rate(times_s: Sequence[float]) -> float:
    span = times_s[-1] - times_s[0] if times_s else 0.0
    return (len(times_s) - 1) / span if span else 0.0


def _line(times_s: Sequence[float], values: Sequence[float | None], unit: float) -> Line:
    """At most MOST_POINTS of the samples, evenly."""
    every = -(-len(times_s) // MOST_POINTS) if times_s else 1
    pairs = list(zip(times_s, values, strict=True))[::every]
    return [(round(at, 4), None if value is None else value / unit) for at, value in pairs]


def largest_gaps(record: Record) -> Line:
    """(s, ms): the largest gap between two tokens of a request that ended in each of MOST_POINTS // 4 slices."""
    gaps = [
        (after, after - before)
        for request in record["requests"]
        for (before, _), (after, _) in zip(emissions(request), emissions(request)[1:], strict=False)
    ]
    if not gaps:
        return []
    last, slices = max(at for at, _ in gaps), MOST_POINTS // 4
    largest: dict[int, tuple[int, int]] = {}
    for at, gap in gaps:
        place = min(slices - 1, at * slices // max(1, last))
        largest[place] = max(largest.get(place, (0, 0)), (gap, at))
    return [(round(at / NS_PER_S, 4), gap / 1e6) for _, (gap, at) in sorted(largest.items())]


def telemetry_rows(record: Record) -> list[dict[str, Any]]:
    """One row a sample, for a table and a file; empty without any."""
    found = record.get("telemetry")
    if found is None or found["samples"] is None:
        return []
    return [
        {"t_s": at / NS_PER_S, **{name: None if values is None else values[place]
                                  for name, values in found["samples"].items()}}
        for place, at in enumerate(found["t_ns"])
    ]  # fmt: skip
