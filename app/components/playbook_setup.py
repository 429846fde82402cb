"""The top of the Playbook page: the recipe, its steps, the traffic, the objectives, and the Run button."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.components.inputs import choice, segments, several, text
from app.components.objectives import objectives
from app.components.run_button import run_button
from app.components.section import escape
from app.state import language, t, workload_name
from experiments.playbook.words import Says
from experiments.playbook_view import (
    ITEMS,
    RECIPE_NAMES,
    REPEATS,
    PlaybookChoice,
    ordered,
    recipe_start,
    recipe_steps,
    recipe_workload,
)
from experiments.workloads import WORKLOADS

STARTS = ("foot", "defaults")


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[PlaybookChoice], None],
    on_cancel: Callable[[], None],
) -> PlaybookChoice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    says = Says(language())
    with st.container(border=True):
        left, right, button = st.columns([2, 1.6, 1], vertical_alignment="bottom")
        with left:
            recipe = choice(page, "recipe", t("playbook.recipe"), RECIPE_NAMES, RECIPE_NAMES[0], says.recipe)
        with right:
            # A recipe brings its own traffic, steps and start: their inputs begin anew with it.
            workload = choice(page, f"workload_{recipe}", t("picker.workload"), list(WORKLOADS),
                              recipe_workload(recipe), workload_name)  # fmt: skip
        st.caption(says.scenario(recipe))
        steps = several(page, f"steps_{recipe}", t("playbook.steps"), ordered(recipe), recipe_steps(recipe), says.step)
        more = _more(page, recipe)
        found = PlaybookChoice(recipe, steps, workload, *more)
        with button:
            run_button(active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                       primary=primary, disabled=not steps)  # fmt: skip
        st.caption(t("playbook.setup_help"))
        with st.expander(t("playbook.steps_help"), type="compact"):
            for name in steps:
                told = t("playbook.step_help", moves=says.moves(name), trap=escape(says.trap(name) or ""))
                st.markdown(f"**{escape(says.step(name))}**\n\n{told}")
    return found


def _more(page: str, recipe: str) -> tuple[str, str, str, str, str]:
    """Objectives, start, repeats, items and settings."""
    left, middle, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    with left:
        slo = objectives(page, "playbook.slo", "playbook.slo_help")
    with middle:
        repeats = choice(page, "repeats", t("picker.repeats"), REPEATS, "5", _repeats)
    with right:
        items = choice(page, "items", t("playbook.items"), ITEMS, "24", str, help=t("playbook.items_help"))
    left, right = st.columns(2)
    with left:
        start = segments(page, f"start_{recipe}", t("playbook.start"), STARTS, recipe_start(recipe),
                         lambda name: t(f"playbook.start_{name}"))  # fmt: skip
    with right:
        settings = text(page, "settings", t("playbook.settings"), "", help=t("playbook.settings_help"))
    return slo, start, repeats, items, settings


def _repeats(value: str) -> str:
    return t("picker.auto") if value == "auto" else value
