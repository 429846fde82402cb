"""Every run of this machine: open, export, delete."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from app.navigation import kernels_page, quantization_page, speculation_page, trace_page, workbench_page
from app.state import error_text, language, store, t
from experiments import jobs
from experiments.kinds import kind_of
from experiments.report import comparison_html, headline
from experiments.store import Run
from experiments.workloads.source import short_name
from ledger.errors import InputError


def page() -> None:
    """Draw the list, newest first."""
    st.title(t("runs.title"), anchor=False)
    st.caption(t("runs.caption"))
    error = st.session_state.pop("runs_error", None)
    if error:
        st.error(t("runs.not_deleted", error=error))
    listed = store().list_runs(limit=200)
    if not listed:
        st.markdown(t("runs.empty"))
    for run in listed:
        _row(jobs.status(run.id, store()) if run.state in jobs.ACTIVE else run)


def _row(run: Run) -> None:
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{_what(run.kind, run.spec)}**  \n{_how_it_went(run)}", width="stretch")
        if run.kind == "compare":
            address = {"run": run.id, "lang": language()}
            st.page_link(workbench_page(), label=t("runs.open"), icon=":material/open_in_new:", query_params=address)
        pages = {"eval": quantization_page, "speculation": speculation_page, "profile": kernels_page}
        if run.kind in pages:
            address = {"run": run.id, "lang": language()}
            st.page_link(pages[run.kind](), label=t("runs.open"), icon=":material/open_in_new:", query_params=address)
        if run.kind in ("compare", "bench") and run.result is not None:
            address = {"run": run.id, "lang": language()}
            st.page_link(trace_page(), label=t("runs.trace"), icon=":material/stacked_bar_chart:", query_params=address)
        if run.kind == "compare" and run.result is not None:
            _export(run)
        if run.state not in jobs.ACTIVE:
            with st.popover(t("runs.delete"), type="tertiary", icon=":material/delete:"):
                st.markdown(t("runs.delete_sure", id=run.id))
                st.button(t("runs.delete"), key=f"delete-{run.id}", on_click=_delete, args=(run.id,))


def _export(run: Run) -> None:
    """Report and JSON of one run; the files are made when asked for."""
    lang, of_runs = language(), store()
    with st.popover(t("runs.export"), type="tertiary", icon=":material/download:"):
        st.download_button(
            t("result.report"),
            lambda: comparison_html(run, of_runs.records(run.id), lang),
            f"trilemma-{run.id}.html",
            "text/html",
            key=f"html-{run.id}",
            on_click="ignore",
        )
        st.download_button(
            t("result.json"),
            json.dumps(run.result, indent=1, ensure_ascii=False),
            f"trilemma-{run.id}.json",
            "application/json",
            key=f"json-{run.id}",
            on_click="ignore",
        )


def _what(kind: str, spec: dict[str, Any]) -> str:
    if kind == "compare":
        values = " → ".join(str(value) for value in spec["values"])
        vary = t("runs.vary", variable=t(f"var.{spec['variable']}"), values=values)
        return f"{vary} · {short_name(spec['workload'])}"
    return f"{kind} · {kind_of(kind).says(spec)}"


def _how_it_went(run: Run) -> str:
    parts = [run.id, run.created_at[:16].replace("T", " ") + " UTC", t(f"runs.state_{run.state}")]
    if run.kind == "compare" and run.result is not None:
        parts.append(headline(run.result, language())[1])
    if run.error:
        parts.append(error_text(run.error))
    return " · ".join(parts)


def _delete(run_id: str) -> None:
    try:
        jobs.delete(run_id, store())
    except InputError as error:
        st.session_state["runs_error"] = str(error)
