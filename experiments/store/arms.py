"""The arms of a run as rows of their own, so that "every run with batching=static" is a question to the store.

Owns the one thing that the store reads out of a result: its list `arms` (of a sweep `points`) of objects with "value",
"values" or "settings", and "metrics", beside "variable" (of a sweep the name in "over"). A result without has no arms.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arm:
    """One arm of one run. `value` is that of `variable`, or an object of settings where several differ."""

    run_id: str
    arm: int
    variable: str | None
    value: Any
    metrics: dict[str, Any] | None


def arms_of(result: Mapping[str, Any] | None) -> list[tuple[str | None, Any, Any]]:
    """(variable, value, metrics) of every arm of a result; empty for one without arms."""
    found = result or {}
    listed = found.get("arms", found.get("points"))
    if not isinstance(listed, list) or not all(isinstance(arm, dict) for arm in listed):
        return []
    over = found.get("over")
    variable = found.get("variable", over.get("name") if isinstance(over, Mapping) else None)
    name = variable if isinstance(variable, str) else None
    return [(name, _value_of(arm), arm.get("metrics")) for arm in listed]


def _value_of(arm: Mapping[str, Any]) -> Any:
    return next((arm[name] for name in ("value", "values", "settings") if arm.get(name) is not None), None)


def insert_arms(db: sqlite3.Connection, run_id: str, arms: Sequence[tuple[str | None, Any, Any]]) -> None:
    """Put them in the place of what is there of the run."""
    db.execute("DELETE FROM arms WHERE run_id = ?", (run_id,))
    db.executemany(
        "INSERT INTO arms (run_id, arm, variable, value, metrics) VALUES (?, ?, ?, ?, ?)",
        [(run_id, i, name, _text(value), _text(metrics)) for i, (name, value, metrics) in enumerate(arms)],
    )


def select_arms(db: sqlite3.Connection, run_id: str | None, variable: str | None, value: Any, limit: int) -> list[Arm]:
    """Arms of a run, or of every run with a variable (and a value of it), newest run first."""
    rows = db.execute(
        "SELECT arms.* FROM arms JOIN runs ON runs.id = arms.run_id WHERE (?1 IS NULL OR arms.run_id = ?1)"
        " AND (?2 IS NULL OR arms.variable = ?2) AND (?3 IS NULL OR arms.value = ?3)"
        " ORDER BY runs.ticket DESC, arms.arm LIMIT ?4",
        (run_id, variable, _text(value), limit),
    ).fetchall()
    return [
        Arm(row["run_id"], row["arm"], row["variable"], _value(row["value"]), _value(row["metrics"])) for row in rows
    ]


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
