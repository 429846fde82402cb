"""A run's report as files, in every format, made when one is asked for."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.state import language, store, t
from experiments.report import FORMATS, report_bytes
from experiments.store import Run


def report_files(run: Run, where: str = "result") -> None:
    """A button that opens the formats. `where` keeps the keys of a run apart that is drawn twice."""
    with st.popover(t("report.title"), icon=":material/description:", key=f"{where}-report-{run.id}"):
        report_formats(run, where)


def report_formats(run: Run, where: str) -> None:
    """A download a format."""
    for name, form in FORMATS.items():
        st.download_button(
            t(f"report.{name}"), _writer(run.id, name), f"trilemma-{run.id}.{name}", form.mime,
            key=f"{where}-{name}-{run.id}", on_click="ignore",
        )  # fmt: skip
    st.caption(t("report.help"))


def _writer(run_id: str, name: str) -> Callable[[], bytes]:
    lang, of_runs = language(), store()
    return lambda: report_bytes(run_id, of_runs, name, lang)
