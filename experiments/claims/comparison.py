"""What the checks that run comparisons share: reading a compare JSON, and the fields of an evidence row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Compare = Callable[[dict[str, Any]], Mapping[str, Any]]
Verdict = tuple[str, str]
HOLDS, LIMITED, FAILS, UNDECIDED = "holds", "holds with a limit", "does not hold here", "undecided"
# For what is counted rather than timed, three pairs tell as much as twenty.
FEW_REPEATS = 3
FIXED = ("variable", "values", "workload")
KEPT = ("baseline", "candidate", "change_pct", "ci95", "noise_floor_pct", "verdict", "provenance")


def spec_of(options: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A comparison's spec: the check's own fields and settings, then what the user gave, then FIXED.

    FIXED is the check's alone. The user's settings win over the check's: a claim can be tried at another pool size.
    """
    fixed: dict[str, Any] = {name: fields.pop(name) for name in FIXED}
    merged = {**(settings or {}), **(options.get("settings") or {})}
    return {**fields, **{k: v for k, v in options.items() if k != "settings"}, "settings": merged, **fixed}


def curve(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One of the five curves of a compare JSON."""
    return next(curve for curve in result["curves"] if curve["name"] == name)


def arms(result: Mapping[str, Any], *path: str) -> list[Any]:
    """One figure of both arms' metrics, by its keys; None where a step of the way is missing."""
    found = []
    for arm in result["arms"]:
        value: Any = arm["metrics"]
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        found.append(value)
    return found


def row(part: str, spec: Mapping[str, Any], result: Mapping[str, Any], **figures: Any) -> dict[str, Any]:
    """An evidence row: what was compared, the figures, and the run that holds the rest."""
    return {
        "part": part,
        "workload": spec["workload"],
        "variable": spec["variable"],
        "values": spec["values"],
        **figures,
        "repeats": result["repeats"],
        "run_id": result["run_id"],
        "provenance": "measured",
    }


def curve_row(part: str, spec: Mapping[str, Any], result: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An evidence row with one of the five curves."""
    return row(part, spec, result, curve=name, **{key: curve(result, name)[key] for key in KEPT})
