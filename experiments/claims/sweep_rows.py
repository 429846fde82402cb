"""What the checks that run sweeps share: their spec, a row a point, and the change between two points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.statistics import MIN_NOISE_FLOOR, mean_interval

Sweep = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.sweep -> its JSON; the run that holds it is named in `run_id`."""

REPEATS = 3
FIGURES = ("output_tokens_per_s", "requests_per_s", "ttft_p95_s", "itl_p95_s", "latency_per_token_s", "goodput_rps",
           "slo_attainment", "cost_per_million_output_tokens")  # fmt: skip


def spec_of(options: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A sweep's spec: the check's own fields and settings, then the user's; "auto" repeats are REPEATS.

    The variable that is swept stays the check's.
    """
    merged = {**(settings or {}), **(options.get("settings") or {})}
    merged.pop(fields.get("over", ""), None)
    given = {name: value for name, value in options.items() if name not in ("settings", "repeats") and value}
    repeats = options.get("repeats")
    wanted = fields.pop("repeats", REPEATS) if repeats in (None, "auto") else int(repeats)
    return {**fields, **given, "repeats": wanted, "settings": merged}


def rows(part: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evidence row a point, with the run that holds the rest."""
    return [
        {
            "part": f"{part}, {point['label']}",
            **{name: point[name] for name in FIGURES if point[name] is not None},
            "num_requests": point["num_requests"],
            "repeats": len(point["repeats"]),
            "run_id": result["run_id"],
            "provenance": point["provenance"],
        }
        for point in result["points"]
    ]


def point_at(result: Mapping[str, Any], value: Any) -> Mapping[str, Any] | None:
    """The point of a value; None where it could not be measured."""
    return next((point for point in result["points"] if point["value"] == value), None)


@dataclass(frozen=True)
class Change:
    """A figure's ratio between two points over pairs of repeats, with its 95 % interval (None with one repeat)."""

    ratio: float | None
    low: float | None
    high: float | None

    @property
    def rose(self) -> bool | None:
        """Beyond 1 % and the interval; None when the interval can't tell."""
        return self._beyond(1 + MIN_NOISE_FLOOR, self.low, above=True)

    @property
    def fell(self) -> bool | None:
        """As `rose`, the other way."""
        return self._beyond(1 / (1 + MIN_NOISE_FLOOR), self.high, above=False)

    def _beyond(self, floor: float, end: float | None, *, above: bool) -> bool | None:
        if self.ratio is None:
            return None
        if self.ratio <= floor if above else self.ratio >= floor:
            return False
        if end is None:
            return None
        return True if (end > 1 if above else end < 1) else None

    def text(self) -> str:
        """ "x1.23 [1.1, 1.4]"."""
        if self.ratio is None:
            return "unknown"
        ends = "" if self.low is None or self.high is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"x{self.ratio:.2f}{ends}"


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str) -> Change:
    """The change of a figure of the repeats from one point to another, repeat by repeat."""
    if before is None or after is None:
        return Change(None, None, None)
    pairs = zip(before["repeats"], after["repeats"], strict=False)
    logs = [math.log(two[name] / one[name]) for one, two in pairs if one[name] and two[name]]
    if not logs:
        return Change(None, None, None)
    found = mean_interval(logs)
    if found is None:
        return Change(math.exp(logs[0]), None, None)
    return Change(math.exp(found.mean), math.exp(found.low), math.exp(found.high))
