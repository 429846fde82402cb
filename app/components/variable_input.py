"""The control of an engine variable: drawn from the registry, and the same on every page that offers the variable."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.components.inputs import begin_with, keep, key_of
from app.state import t
from core_engine.variables import VARIABLES, Value, Variable, parse_value
from ledger.errors import InputError

MOST_WHOLE = 2**53 - 1  # the browser counts whole numbers no further


def variable_control(
    entry: Variable,
    label: str,
    value: Value,
    key: str,
    *,
    choices: Sequence[str] = (),
    disabled: bool = False,
    explained: str | None = None,
) -> Value:
    """Draw it, starting from `value` the first time; the value it holds, which is always accepted by the registry.

    choices: those of a page that offers fewer; explained: help beside the label.
    """
    if key not in st.session_state:
        st.session_state[key] = _held_as(entry)(value)
    if entry.kind == "choice":
        return st.selectbox(label, choices or entry.choices, key=key, disabled=disabled, help=explained)
    if entry.kind == "path":
        typed = st.text_input(label, key=key, disabled=disabled, help=t("picker.path_help")).strip()
        return typed or str(value)
    low, high = entry.minimum or 0, entry.maximum or 0
    if entry.kind == "int":
        top = min(int(high), MOST_WHOLE)
        return int(st.number_input(label, int(low), top, key=key, disabled=disabled, help=explained))
    return float(st.number_input(label, float(low), float(high), key=key, disabled=disabled, help=explained))


def variable_input(
    page: str,
    name: str,
    variable: str,
    *,
    label: str | None = None,
    default: Value | None = None,
    choices: Sequence[str] = (),
) -> Value:
    """The control on a page whose inputs live in the address, as `name`; label: where its role has another name."""
    entry, key = VARIABLES[variable], key_of(page, name)
    start = entry.default if default is None else default
    if key not in st.session_state or (choices and st.session_state[key] not in choices):
        begin_with(page, name, lambda text: _accepted(entry, text, choices), start)
    explained = t(f"help.{variable}")
    label = label or t(f"var.{variable}")
    value = variable_control(entry, label, start, key, choices=choices, explained=explained)
    keep(page, name, f"{value:g}" if isinstance(value, float) else value, label)
    return value


def _accepted(entry: Variable, text: str, choices: Sequence[str]) -> Value | None:
    """A text of the address as a value; None where it is not accepted."""
    try:
        value = parse_value(entry.name, text)
    except InputError:
        return None
    return value if not choices or value in choices else None


def _held_as(entry: Variable) -> type[str] | type[int] | type[float]:
    return {"int": int, "float": float}.get(entry.kind, str)
