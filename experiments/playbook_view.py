"""A ladder as the Playbook page asks for it and draws it: the choice, and rows of texts. Knows no page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.playbook.recipes import RECIPES, get_recipe
from experiments.playbook.steps import STEPS
from experiments.playbook.words import Says
from experiments.report.words import MISSING, curve_value, interval, number, signed_percent
from ledger.errors import InputError

RECIPE_NAMES = tuple(RECIPES)
REPEATS = ("3", "5", "8", "auto")
ITEMS = ("12", "24", "48", "96")
Result = Mapping[str, Any]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class PlaybookChoice:
    """What the page is left at; workload None is the recipe's, slo "" is none."""

    recipe: str
    steps: Sequence[str]
    workload: str | None = None
    slo: str = ""
    start: str | None = None
    repeats: str = "5"
    items: str = "24"
    settings: str = ""

    def spec(self) -> dict[str, Any]:
        """The spec of the run; InputError when no step was chosen, or a setting is not NAME=VALUE."""
        if not self.steps:
            raise InputError("steps", "none", "at least one")
        given = {
            "recipe": self.recipe,
            "steps": list(self.steps),
            "workload": self.workload,
            "slo": self.slo or None,
            "start": self.start,
            "repeats": self.repeats,
            "quality_items": self.items,
            "settings": _settings(self.settings),
        }
        return {name: value for name, value in given.items() if value is not None}


def _settings(text: str) -> dict[str, Any]:
    from core_engine.variables import parse_setting

    return dict(parse_setting(part) for part in text.replace(",", " ").split())


def recipe_steps(name: str) -> tuple[str, ...]:
    """Names of a recipe's steps, in its order."""
    return get_recipe(name).steps


def recipe_workload(name: str) -> str:
    """The workload that a recipe stands for."""
    return get_recipe(name).workload


def recipe_start(name: str) -> str:
    """What a recipe's settings begin from."""
    return get_recipe(name).start


def ordered(recipe: str) -> tuple[str, ...]:
    """All steps, those of a recipe first and in its order."""
    own = recipe_steps(recipe)
    return (*own, *(name for name in STEPS if name not in own))


def curve_rows(curves: Sequence[Row], says: Says) -> list[list[str]]:
    """Curve, before, after, change, interval, verdict, as texts."""
    return [
        [says.curve(curve["name"]), curve_value(curve["name"], curve["baseline"]),
         curve_value(curve["name"], curve["candidate"]), signed_percent(curve["change_pct"]), interval(curve["ci95"]),
         says.verdict(curve["verdict"])]
        for curve in curves
    ]  # fmt: skip


def return_rows(result: Result, says: Says) -> list[list[str]]:
    """Place, step, outcome, measured, kept, effort, return an hour, the usual rank, as texts."""
    return [
        [str(row["place"]), says.step(row["step"]), says.outcome(row["outcome"]), signed_percent(row["measured_pct"]),
         signed_percent(row["gain_pct"]), says.effort(row), number(row["return_pct_per_hour"]),
         MISSING if row["rank"] is None else str(row["rank"])]
        for row in result["returns"]
    ]  # fmt: skip


def table_of(result: Result) -> list[dict[str, Any]]:
    """A row a step and curve with plain figures, for a file."""
    return [
        {"step": row["name"], "outcome": row["outcome"], "curve": curve["name"], "before": curve["baseline"],
         "after": curve["candidate"], "change_pct": curve["change_pct"], "verdict": curve["verdict"]}
        for row in result["steps"] if row["comparison"] for curve in row["comparison"]["curves"]
    ]  # fmt: skip


def settings_line(settings: Mapping[str, Any]) -> str:
    """NAME=VALUE, ... of settings; empty for none."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def command(settings: Mapping[str, Any]) -> str:
    """The options that set them on the command line."""
    return " ".join(f"--set {name}={value}" for name, value in settings.items())
