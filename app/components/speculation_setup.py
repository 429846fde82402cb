"""The top of the Speculation page: which forms, tasks and target, and the Run button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.inputs import choice, several
from app.components.run_button import run_button
from app.components.speculation_words import form_name, part_name
from app.components.variable_input import variable_input
from app.state import t
from core_engine.variables import VARIABLES
from experiments.speculation.spec import FORMS
from experiments.speculation.tasks import TASKS
from experiments.speculation_setup import ANSWERS, DTYPES, REPEATS, SWEEPS, TARGETS, Choice


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[Choice], None],
    on_cancel: Callable[[], None],
) -> Choice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        left, right, button = st.columns([2.4, 2, 0.9], vertical_alignment="bottom")
        with left:
            forms = several(page, "forms", t("spec.forms"), FORMS, FORMS, form_name)
        with right:
            tasks = several(page, "tasks", t("spec.tasks"), TASKS, TASKS, part_name)
        found = Choice(forms, tasks, **_more(page))
        with button:
            run_button(
                active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                primary=primary, disabled=not tasks,
            )  # fmt: skip
        if not tasks:
            st.caption(t("spec.choose_one"))
        st.caption(t("spec.setup_help"))
    return found


def _more(page: str) -> dict[str, Any]:
    """What holds for all forms."""
    columns = st.columns(5)
    with columns[0]:
        target = choice(page, "target", t("spec.target"), TARGETS, TARGETS[0], _target, help=t("spec.target_help"))
    with columns[1]:
        k = variable_input(page, "k", "num_draft_tokens")
    with columns[2]:
        answer = choice(page, "tokens", t("spec.tokens"), [str(n) for n in ANSWERS], "64", str)
    with columns[3]:
        repeats = choice(page, "repeats", t("spec.repeats"), [str(n) for n in REPEATS], "5", str)
    with columns[4]:
        sweep = choice(page, "sweep", t("spec.sweep"), list(SWEEPS), "32", _sweep, help=t("spec.sweep_help"))
    with st.expander(t("quant.other_model"), icon=":material/tune:", type="compact"):
        default = str(VARIABLES["model"].default)
        path = str(variable_input(page, "model", "model"))
        dtype = str(variable_input(page, "dtype", "dtype", default=DTYPES[0], choices=DTYPES))
    return {
        "num_draft_tokens": int(k), "max_tokens": int(answer), "repeats": int(repeats), "sweep": sweep,
        "model": target if path == default else path, "dtype": dtype,
    }  # fmt: skip


def _target(name: str) -> str:
    return t(f"spec.target_{name}")


def _sweep(name: str) -> str:
    return t("spec.sweep_off") if name == "off" else t("spec.sweep_to", count=name)
