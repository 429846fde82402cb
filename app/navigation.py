"""The pages that exist. Each imports its code when it is drawn, so that the navigation itself is there at once."""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.state import t


def workbench_page() -> StreamlitPage:
    """The Workbench, which opens first."""
    return st.Page(_workbench, title=t("nav.workbench"), icon=":material/science:", url_path="workbench", default=True)


def trace_page() -> StreamlitPage:
    """Where time and memory of one stored run went."""
    return st.Page(_trace, title=t("nav.trace"), icon=":material/stacked_bar_chart:", url_path="trace")


def runs_page() -> StreamlitPage:
    """The list of runs."""
    return st.Page(_runs, title=t("nav.runs"), icon=":material/list:", url_path="runs")


def _workbench() -> None:
    from app.views import workbench

    workbench.page()


def _trace() -> None:
    from app.views import trace

    trace.page()


def _runs() -> None:
    from app.views import runs

    runs.page()
