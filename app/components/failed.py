"""A run that failed: what happened, what is safe, what to do next, and the engine's log behind "details"."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.components.section import escape
from app.state import error_text, store, t
from experiments.store import Run
from experiments.worker import log_path

LOG_CHARACTERS = 5000


def failed_run(run: Run, then: str, again: Callable[[], None], label: str | None = None) -> None:
    """Draw it; `then` says what the button does, which calls `again`."""
    with st.container(border=True):
        st.error(t("failed.title", error=escape(error_text(run.error))))
        st.markdown(f"{t('failed.safe')} {then}")
        st.button(label or t("failed.restart"), icon=":material/restart_alt:", on_click=again, key="restart")
        with st.expander(t("failed.details")):
            st.code(_log(run) or t("failed.no_log"), language=None, wrap_lines=True)


def _log(run: Run) -> str:
    try:
        return log_path(store(), run.id).read_text("utf-8", errors="replace")[-LOG_CHARACTERS:]
    except OSError:
        return ""
