"""The top of the 2 x 2 page: two variables with two values each, the workload, and the Run button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.draft import STARTS
from app.components.factorial_draft import KEY, LABELS, draft, note_change, version, write_address
from app.components.picker import REPEAT_CHOICES
from app.components.run_button import run_button
from app.components.undo import undo_button
from app.components.variable_input import variable_control
from app.state import t
from core_engine.variables import VARIABLES
from experiments.workloads import WORKLOADS


def setup(*, active: bool, cancelling: bool, on_run: Callable[[], None], on_cancel: Callable[[], None]) -> None:
    """Draw the inputs; while a run is active Cancel stands in the place of Run."""
    current = draft()
    with st.container(border=True):
        for place in (0, 1):
            _factor(current, place, active)
        columns = st.columns([2.4, 1.2, 1], vertical_alignment="bottom")
        with columns[0]:
            names = list(WORKLOADS)
            index = names.index(current["workload"]) if current["workload"] in names else 0
            current["workload"] = st.selectbox(
                t("picker.workload"), names, index=index, format_func=lambda name: t(f"workload.{name}"),
                disabled=active, key=f"two-workload-{version()}",
            )  # fmt: skip
        with columns[1]:
            choices = REPEAT_CHOICES if current["repeats"] in REPEAT_CHOICES else (current["repeats"], *REPEAT_CHOICES)
            current["repeats"] = st.selectbox(
                t("picker.repeats"), choices, index=choices.index(current["repeats"]), disabled=active,
                format_func=lambda choice: t("picker.auto") if choice == "auto" else str(choice),
                key=f"two-repeats-{version()}",
            )  # fmt: skip
        with columns[2]:
            run_button(active=active, cancelling=cancelling, on_run=on_run, on_cancel=on_cancel)
        settings = ", ".join(f"{name}={value}" for name, value in current["settings"].items())
        st.caption(t("two.held", settings=settings) if settings else t("two.held_defaults"))
    note_change()
    if not active:
        undo_button(KEY)
    write_address()


def _factor(current: dict[str, Any], place: int, active: bool) -> None:
    name, values = current["factors"][place]
    columns = st.columns([1.6, 1.2, 1.2], vertical_alignment="bottom")
    others = [other for other in STARTS if other != current["factors"][1 - place][0]]
    with columns[0]:
        chosen = st.selectbox(
            t(LABELS[place]), others, index=others.index(name), format_func=lambda other: t(f"var.{other}"),
            disabled=active, key=f"two-name-{place}-{current['factors'][1 - place][0]}-{version()}",
        )  # fmt: skip
    if chosen != name:
        current["factors"][place] = [chosen, list(STARTS[chosen])]
        current["settings"].pop(chosen, None)
        st.rerun()
    for arm, column in enumerate(columns[1:]):
        with column:
            label = t("picker.candidate" if arm else "picker.baseline")
            key = f"two-value-{place}-{arm}-{name}-{version()}"
            values[arm] = variable_control(VARIABLES[name], label, values[arm], key, disabled=active)
