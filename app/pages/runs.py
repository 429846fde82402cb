"""Every run of this machine: open, export, delete."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.state import language, store, t
from experiments import jobs
from experiments.report import headline
from experiments.store import Run
from ledger.errors import InputError


def page() -> None:
    """Draw the list, newest first."""
    st.title(t("runs.title"))
    st.caption(t("runs.caption"))
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
            st.page_link(_workbench(), label=t("runs.open"), icon=":material/open_in_new:", query_params=address)
        if run.state not in jobs.ACTIVE:
            with st.popover(t("runs.delete"), type="tertiary", icon=":material/delete:"):
                st.markdown(t("runs.delete_sure", id=run.id))
                st.button(t("runs.delete"), key=f"delete-{run.id}", on_click=_delete, args=(run.id,))


def _workbench() -> Any:
    from app.pages import workbench

    return st.Page(workbench.page, url_path="workbench", default=True)


def _what(kind: str, spec: dict[str, Any]) -> str:
    if kind == "compare":
        values = " → ".join(str(value) for value in spec["values"])
        return f"{t('runs.vary', variable=t('var.' + spec['variable']), values=values)} · {spec['workload']}"
    return f"{kind} · {spec.get('workload') or spec.get('claim')}"


def _how_it_went(run: Run) -> str:
    parts = [run.id, run.created_at[:16].replace("T", " ") + " UTC", t(f"runs.state_{run.state}")]
    if run.kind == "compare" and run.result is not None:
        parts.append(headline(run.result, language())[1])
    if run.error:
        parts.append(run.error)
    return " · ".join(parts)


def _delete(run_id: str) -> None:
    try:
        jobs.delete(run_id, store())
    except InputError as error:
        st.session_state["runs_error"] = str(error)
