"""Quantization: what number formats of weights and KV cache save, how fast they are, and what they cost in quality."""

from __future__ import annotations

import streamlit as st

from app.components import quantization_results as results
from app.components.failed import failed_run
from app.components.inputs import passed_over
from app.components.quantization_live import live_evaluation
from app.components.quantization_predictions import ask
from app.components.quantization_setup import setup
from app.components.stored_job import cancel, must_predict, resume, resume_button, shown_run, start, tell, told
from app.state import store, t
from experiments import jobs
from experiments.quality.predictions import Prediction, lock_in
from experiments.store import Run

PAGE = "quant"
KIND = "eval"


def page() -> None:
    """Draw the page for the evaluation in the address, or the newest one."""
    st.title(t("quant.question"), anchor=False)
    st.caption(t("quant.caption"))
    run = shown_run(PAGE, KIND, t("quant.stored"), _what)
    active = run is not None and run.state in jobs.ACTIVE
    asking = run is not None and must_predict(run)
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
        st.markdown(t("quant.intro"))
        return
    if active:
        live_evaluation(run.id)
    if asking:
        ask(run, lambda given: _predict(run.id, given))
    elif run.result is not None and not active:
        results.results(run)
    elif run.state == "failed":
        failed_run(run, t("quant.failed_next"), lambda: resume(PAGE, run), t("quant.resume"))
    elif run.state == "cancelled":
        st.info(t("quant.cancelled"))
        resume_button(PAGE, run, t("quant.resume"))


def _what(run: Run) -> str:
    arms = run.spec.get("arms") or []
    varied = [run.spec["vary"][0]] if run.spec.get("vary") else list(run.spec.get("settings") or {})
    return ", ".join(str(next(iter(arm.values()))) for arm in arms) or ", ".join(varied)


def _predict(run_id: str, given: dict[str, Prediction]) -> None:
    tell(PAGE, lambda: lock_in(run_id, given, store()))
