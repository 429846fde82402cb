"""Taking back the last change of a form: a short history for each page, and the button that goes one step back."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import streamlit as st

from app.state import t

HISTORIES = "undo-histories"  # page -> [(what was changed, in words, what takes it back)], oldest first
SEEN = "undo-seen"  # page -> its form as it was last drawn
MOST = 20
SHORTCUT = "Alt+Z"

Form = dict[str, Any]


def remember(page: str, what: str, back: Callable[[], object]) -> None:
    """Note a change of a page's form; `back` is called before the draw in which it is taken back."""
    history = _history(page)
    history.append((what, back))
    del history[:-MOST]


def note(page: str, now: Form, what: Callable[[Form, Form], str], restore: Callable[[Form], None]) -> None:
    """Compare a form that is kept as one object with what it was when it was last drawn, and remember a change."""
    seen: dict[str, Form] = st.session_state.setdefault(SEEN, {})
    before, seen[page] = seen.get(page, now), deepcopy(now)
    if before != now:

        def back() -> None:
            restore(deepcopy(before))
            seen[page] = before

        remember(page, what(before, now), back)


def forget(page: str) -> None:
    """Drop the history, when a form begins anew."""
    _history(page).clear()
    st.session_state.get(SEEN, {}).pop(page, None)


def undo_button(page: str) -> None:
    """Draw it where there is something to take back."""
    history = _history(page)
    if not history:
        return
    st.button(
        t("undo.button", what=history[-1][0]), icon=":material/undo:", type="tertiary", key=f"undo-{page}",
        on_click=_undo, args=(page,), shortcut=SHORTCUT,
    )  # fmt: skip


def _undo(page: str) -> None:
    history = _history(page)
    if history:
        _, back = history.pop()
        back()


def _history(page: str) -> list[tuple[str, Callable[[], object]]]:
    found: list[tuple[str, Callable[[], object]]] = st.session_state.setdefault(HISTORIES, {}).setdefault(page, [])
    return found
