"""The button that starts a job; while one is active Cancel stands in its place."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.state import t


def run_button(
    *,
    active: bool,
    cancelling: bool,
    on_run: Callable[[], None],
    on_cancel: Callable[[], None],
    label: str = "picker.run",
    primary: bool = True,
    disabled: bool = False,
) -> None:
    """Draw it as wide as its column. label: key of the message on it while nothing is active."""
    if active:
        said = t("picker.cancelling") if cancelling else t("picker.cancel")
        st.button(said, icon=":material/stop:", on_click=on_cancel, disabled=cancelling, width="stretch")
        return
    st.button(
        t(label), icon=":material/play_arrow:", type="primary" if primary else "secondary", on_click=on_run,
        disabled=disabled, width="stretch", key="run", shortcut="Ctrl+Enter",
    )  # fmt: skip
