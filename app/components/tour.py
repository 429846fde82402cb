"""The first-run tour of the Workbench: a few sentences, each with the control that it speaks of outlined.

It stands in the page rather than over it, so that every control can be tried while it is read and nothing traps the
keyboard.
"""

from __future__ import annotations

import contextlib

import streamlit as st

from app.preferences import prefer, preferences
from app.state import mode, t
from app.theme import TOKENS
from ledger.errors import CannotRunError

KEY = "tour-step"
# Step -> where its control is on the page.
STEPS: dict[str, str] = {
    "variable": ".st-key-variable_box",
    "values": ".st-key-arm_values",
    "held": ".st-key-held",
    "guess": ".st-key-guess_box",
    "run": ".st-key-run",
    "pages": '[data-testid="stSidebarNav"], [data-testid="stExpandSidebarButton"]',
}


def tour() -> None:
    """Draw the step that it stands at; nothing for who has seen or left it."""
    if KEY not in st.session_state:
        if preferences().tour_seen:
            return
        st.session_state[KEY] = 0
    place = st.session_state[KEY]
    if place is None:
        return
    name, last = list(STEPS)[place], place == len(STEPS) - 1
    outline = f"outline: 2px solid {TOKENS[mode()]['cand']}; outline-offset: 5px; border-radius: 8px;"
    st.html(f"<style>{STEPS[name]} {{ {outline} }}</style>")
    with st.container(border=True, key="tour"):
        st.caption(t("tour.place", step=place + 1, of=len(STEPS)))
        st.markdown(t(f"tour.{name}"))
        with st.container(horizontal=True):
            if place:
                st.button(
                    t("tour.back"), icon=":material/arrow_back:", on_click=_go, args=(place - 1,), key="tour-back"
                )
            label, icon = ("tour.done", "check") if last else ("tour.next", "arrow_forward")
            go_on = leave_tour if last else lambda: _go(place + 1)
            st.button(t(label), icon=f":material/{icon}:", on_click=go_on, key="tour-next")
            if not last:
                st.button(t("tour.skip"), type="tertiary", on_click=leave_tour, key="tour-skip")


def show_tour() -> None:
    """Begin it anew, when the Workbench is drawn next."""
    _go(0)


def leave_tour() -> None:
    """End it, and remember so; where the data folder can't be written it is remembered for this session alone."""
    _go(None)
    with contextlib.suppress(CannotRunError):
        prefer(tour_seen=True)


def _go(place: int | None) -> None:
    st.session_state[KEY] = place
