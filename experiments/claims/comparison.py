"""What the checks that run comparisons and 2 x 2 experiments share: reading their JSON, the fields of evidence rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Compare = Callable[[dict[str, Any]], Mapping[str, Any]]
Factorial = Callable[[dict[str, Any]], Mapping[str, Any]]
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


def factorial_spec(options: Mapping[str, Any], settings: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A 2 x 2 experiment's spec: as spec_of, but `factors` are the check's alone; the user can't set what they vary."""
    factors = fields.pop("factors")
    given = {name: value for name, value in (options.get("settings") or {}).items() if name not in dict(factors)}
    rest = {name: value for name, value in options.items() if name != "settings"}
    return {**fields, **rest, "settings": {**settings, **given}, "factors": factors}


def effect_rows(spec: Mapping[str, Any], result: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """An evidence row for each effect of a 2 x 2 experiment on one curve."""
    return [
        {
            "part": effect,
            "workload": spec["workload"],
            "factors": spec["factors"],
            "curve": name,
            **{key: effect_curve(result, effect, name)[key] for key in KEPT},
            "repeats": result["repeats"],
            "run_id": result["run_id"],
            "provenance": "measured",
        }
        for effect in result["effects"]
    ]


def effect_curve(result: Mapping[str, Any], effect: str, name: str) -> Mapping[str, Any]:
    """One curve of one effect of a factorial JSON."""
    return next(curve for curve in result["effects"][effect] if curve["name"] == name)


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
