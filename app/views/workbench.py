"""The Workbench: change one variable, measure both arms, read the verdict.

It is the first page, and set up before anything is drawn as a chart or a table: what does that is imported by the runs
that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import own_jobs
from app.components import draft as drafts
from app.components.failed import failed_run
from app.components.picker import picker
from app.components.section import escape
from app.components.stored_job import cancel, resume, resume_button, tell, told
from app.components.tour import tour
from app.state import set_address, store, t
from app.visitor import is_mine, may_change
from experiments import jobs
from experiments.store import Run
from experiments.store.identity import GUESSES
from ledger.errors import InputError

if TYPE_CHECKING:
    from experiments.timeline import ArmTimeline

PAGE = "workbench"


def page() -> None:
    """Draw the page for the run in the address, or the experiment being set up."""
    run = _shown_run()
    active = run is not None and run.state in jobs.ACTIVE
    _title(run)
    if run is None:
        tour()
    picker(
        active=active and run is not None and may_change(run),
        cancelling=run is not None and run.cancel_requested,
        ran=run is not None,
        on_run=_start,
        on_cancel=lambda: cancel(PAGE, run),
    )
    told(PAGE)
    if run is None:
        key = "page.intro_auto" if drafts.draft()["repeats"] == "auto" else "page.intro"
        st.markdown(t(key, repeats=drafts.draft()["repeats"]))
    elif active:
        from app.components.live import live_panel

        live_panel(run.id)
    elif run.result is not None:
        _finished(run)
    else:
        _stopped(run)
    with st.expander(t("glossary.title"), icon=":material/menu_book:"):
        st.markdown(t("glossary.text"))


def _stopped(run: Run) -> None:
    """What became of a run without a result, and the way on: from the pairs it kept, or from the beginning."""
    kept = may_change(run) and bool(store().record_keys(run.id))
    if run.state == "failed" and kept:
        failed_run(run, t("failed.go_on"), lambda: resume(PAGE, run), t("runs.resume"))
    elif run.state == "failed":
        failed_run(run, t("failed.next"), lambda: tell(PAGE, lambda: _show(own_jobs.restart(run.id))))
    else:
        st.info(t("failed.cancelled"))
        resume_button(PAGE, run, t("runs.resume"))


def _shown_run() -> Run | None:
    """The run that the address names; its spec fills the picker the first time it is shown."""
    run_id = st.query_params.get("run") or _run_to_come_back_to()
    if not run_id:
        return None
    try:
        run = jobs.status(run_id, store())
    except InputError:
        st.warning(t("page.unknown_run", id=escape(run_id)))
        set_address(run=None)
        st.session_state.pop("loaded_run", None)
        return None
    if run.kind != "compare":
        return None
    set_address(run=run.id)
    if st.session_state.get("loaded_run") != run.id:
        st.session_state["loaded_run"] = run.id
        drafts.load(run.spec)
    return run


def _run_to_come_back_to() -> str | None:
    """With nothing in the address: this session's run, else the one of this visitor that is running now."""
    if "variable" in st.query_params:
        return None
    listed = store().list_runs(kind="compare", results=False)
    active = (run.id for run in listed if run.state in jobs.ACTIVE and is_mine(run))
    return st.session_state.get("loaded_run") or next(active, None)


def _title(run: Run | None) -> None:
    spec = run.spec if run is not None else drafts.draft()
    baseline, candidate = (escape(str(value)) for value in spec["values"])
    if baseline == candidate:
        question = t("page.question_same", variable=t(f"var.{spec['variable']}"), value=baseline)
    elif spec["variable"] == "batching":
        values = {"baseline": t(f"value.{baseline}"), "candidate": t(f"value.{candidate}")}
        question = t("page.question_batching", **values)
    else:
        question = t("page.question", variable=t(f"var.{spec['variable']}"), baseline=baseline, candidate=candidate)
    st.title(question, anchor=False)
    left, right = st.columns([4, 1], vertical_alignment="center")
    right.caption(t("page.run_id", id=run.id) if run is not None else "", text_alignment="right")
    if run is None:
        left.caption(t("page.one_variable"))
    elif run.state in jobs.ACTIVE:
        left.caption(t("page.running"))
    elif run.result is None:
        left.caption(t("page.ended", time=_time(run)))
    else:
        device = (run.result or {}).get("environment", {}).get("cpu", "CPU")
        left.caption(t("page.finished", time=_time(run), device=escape(str(device))))


def _time(run: Run) -> str:
    return run.updated_at[:16].replace("T", " ")


def _start() -> None:
    """Start the draft as a job; what is wrong with it is shown on the next draw."""
    tell(PAGE, lambda: _show(own_jobs.start("compare", drafts.draft())))


def _show(run_id: str) -> None:
    st.session_state["loaded_run"] = run_id  # the draft is this run's spec already
    set_address(run=run_id)


@st.cache_resource(max_entries=8, show_spinner=False)
def _timelines(run_id: str, updated_at: str) -> tuple[ArmTimeline, ...]:
    """What is drawn of a finished run's events; updated_at keys the cache. Shared, not copied: nobody changes it."""
    from experiments.timeline import arm_timelines

    return arm_timelines(run_id, store())


def _finished(run: Run) -> None:
    from app.components.export import export
    from app.components.next_step import next_step
    from app.components.results import results

    asked = {name: value for name, value in drafts.draft().items() if name not in GUESSES}
    if asked != {name: run.spec.get(name) for name in asked}:
        st.info(t("page.differs"))
    if run.state == "cancelled":
        resume_button(PAGE, run, t("runs.resume"))
    results(run, lambda: _timelines(run.id, run.updated_at))
    next_step(run)
    export(run)
