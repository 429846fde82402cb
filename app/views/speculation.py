"""Speculation: what every form of draft gains on the same prompts, what it costs, and where it does not pay."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components import predict_first
from app.components import speculation_results as results
from app.components.failed import failed_run
from app.components.inputs import passed_over
from app.components.job_live import live_job
from app.components.speculation_setup import setup
from app.components.speculation_words import form_name, part_name
from app.components.stored_job import cancel, must_predict, resume, resume_button, shown_run, start, tell, told
from app.state import store, t
from experiments import jobs
from experiments.quality.predictions import Prediction
from experiments.speculation.expected import EXPECTED, lock_in
from experiments.speculation.parts import arm_names
from experiments.speculation.spec import SpeculationSpec
from experiments.store import Run

PAGE = "spec"
KIND = "speculation"


def page() -> None:
    """Draw the page for the run in the address, or the newest one."""
    st.title(t("spec.question"), anchor=False)
    st.caption(t("spec.caption"))
    run = shown_run(PAGE, KIND, t("spec.stored"), _what)
    active = run is not None and run.state in jobs.ACTIVE
    asking = run is not None and must_predict(run) and bool(run.spec["forms"])
    setup(
        PAGE,
        active=active,
        cancelling=run is not None and run.cancel_requested,
        primary=not asking,
        on_run=lambda choice: start(PAGE, KIND, choice.spec),
        on_cancel=lambda: cancel(PAGE, run),
    )
    passed_over(PAGE)
    told(PAGE)
    if run is None:
        st.markdown(t("spec.intro"))
        return
    if active:
        live_job(run.id, _phase, t("spec.leave"))
    if asking:
        names = {form: form_name(form) for form in run.spec["forms"]}
        predict_first.ask(run, names, EXPECTED, "spec", lambda given: _predict(run.id, given))
    elif run.result is not None and not active:
        results.results(run)
    elif run.state == "failed":
        failed_run(run, t("spec.failed_next"), lambda: resume(PAGE, run), t("spec.resume"))
    elif run.state == "cancelled":
        st.info(t("spec.cancelled"))
        resume_button(PAGE, run, t("spec.resume"))


def _what(run: Run) -> str:
    settings = [f"{name}={value}" for name, value in run.spec["settings"].items()]
    return ", ".join([*run.spec["forms"], f"k={run.spec['num_draft_tokens']}", *settings])


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which form is answering which prompts."""
    if live["phase"] != "running":
        return t("spec.phase_warmup" if live["phase"] == "warmup" else "spec.phase_loading")
    part, _, form = arm_names(SpeculationSpec.from_dict(run.spec))[live["arm"]].partition(": ")
    return t(
        "spec.phase_running", part=part_name(part), form=form_name(form), repeat=live["repeat"], of=live["repeats"]
    )


def _predict(run_id: str, given: dict[str, Prediction]) -> None:
    tell(PAGE, lambda: lock_in(run_id, given, store()))
