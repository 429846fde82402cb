"""Taking a comparison away: report, JSON, requests as CSV, link and command line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd
import streamlit as st

from app.components.report_files import report_files
from app.components.section import csv_of
from app.navigation import page_of
from app.state import language, store, t
from experiments.metrics.table import request_rows
from experiments.report.comparison import reproduce_command
from experiments.store import Run


def export(run: Run) -> None:
    """The last section of a finished run; each file is made when it is asked for."""
    of_runs = store()

    def requests() -> str:
        return csv_of(pd.DataFrame(request_rows(of_runs.records(run.id))))

    st.markdown(f"## {t('result.export')}")
    st.caption(t("result.export_caption"))
    with st.container(horizontal=True):
        report_files(run)
        _download(
            t("result.json"),
            lambda: json.dumps(run.result, indent=1),
            f"trilemma-{run.id}.json",
            "application/json",
            ":material/data_object:",
        )
        _download(
            t("result.requests_csv"),
            requests,
            f"trilemma-{run.id}-requests.csv",
            "text/csv",
            ":material/table:",
        )
    address = {"run": run.id, "lang": language()}
    st.page_link(page_of("trace"), label=t("result.trace"), icon=":material/stacked_bar_chart:", query_params=address)
    st.code(reproduce_command(run.spec), language="shell", wrap_lines=True)
    st.caption(t("result.link"))
    st.code(f"{st.context.url}?run={run.id}&lang={language()}", language=None, wrap_lines=True)


def _download(label: str, data: Callable[[], str], name: str, mime: str, icon: str) -> None:
    st.download_button(label, data, name, mime, icon=icon, on_click="ignore", key=name)
