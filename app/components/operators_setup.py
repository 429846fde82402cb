"""The top of the Kernels page: which step, what is varied, and the Run button."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.components.inputs import choice
from app.components.operators_words import step_name, varied_name
from app.components.run_button import run_button
from app.components.variable_input import variable_input
from app.state import t
from experiments.operators_setup import DTYPES, REPEATS, STEPS, VARIED, Choice


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
        columns = st.columns([2, 2, 0.9, 0.9], vertical_alignment="bottom")
        with columns[0]:
            step = choice(page, "step", t("prof.step"), STEPS, STEPS[0], step_name)
        with columns[1]:
            varied = choice(page, "vary", t("prof.vary"), list(VARIED), "fused_ops", varied_name)
        with columns[2]:
            repeats = choice(page, "repeats", t("prof.repeats"), [str(n) for n in REPEATS], "12", str)
        with columns[3]:
            place = st.container()
        with st.expander(t("quant.other_model"), icon=":material/tune:", type="compact"):
            model = str(variable_input(page, "model", "model"))
            dtype = str(variable_input(page, "dtype", "dtype", default=DTYPES[0], choices=DTYPES))
        found = Choice(step, varied, int(repeats), model, dtype)
        with place:
            run_button(
                active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel, primary=primary
            )
        st.caption(t("prof.setup_help"))
    return found
