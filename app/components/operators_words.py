"""How steps, arms, operators and times of the Kernels page are called. Formatting only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.components.section import NO_BREAK
from app.i18n import catalogue
from app.state import language, t
from experiments.operators.spec import parse_step
from experiments.operators_setup import NOTHING, VARIED
from experiments.operators_view import OperatorRow
from experiments.report.words import MISSING, number


def step_name(text: str) -> str:
    """decode:8x256 in words."""
    step = parse_step(text)
    return t(f"prof.step_{step.phase}", batch=step.batch, tokens=f"{step.seq_len:,}")


def varied_name(name: str) -> str:
    """A variable with the values that it is profiled under."""
    return t("prof.vary_none") if name == NOTHING else f"{t('var.' + name)}{t('colon')}{', '.join(VARIED[name])}"


def arm_name(result: Mapping[str, Any], value: Any) -> str:
    """The variable in words and its value; empty where nothing was varied."""
    return "" if result["variable"] is None else f"{t('var.' + result['variable'])} {value}"


def operator_name(row: OperatorRow) -> str:
    """An operator of the compiled step in words; others are called as torch or the kernel's author did."""
    if row.is_rest:
        return t("prof.rest", count=row.name)
    known = row.is_compiled and f"op.{row.name}" in catalogue(language())
    return t(f"op.{row.name}") if known else t("op.dispatch") if row.name == "(dispatch)" else row.short


def milliseconds(seconds: float | None) -> str:
    """With its unit; a dash for none."""
    return MISSING if seconds is None else f"{number(1e3 * seconds)}{NO_BREAK}ms"


def count(value: int | None) -> str:
    """Thousands separated; a dash for none."""
    return MISSING if value is None else f"{value:,}"
