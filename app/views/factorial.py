"""Two at once: two variables in all four combinations, and whether they act on each other."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import own_jobs
from app.components.factorial_draft import differs_from, draft
from app.components.factorial_results import results
from app.components.factorial_setup import setup
from app.components.failed import failed_run
from app.components.job_live import live_job
from app.components.stored_job import cancel, shown_run, start, tell, told
from app.state import set_address, t, workload_name
from app.visitor import may_change
from experiments import jobs
from experiments.factorial import FactorialSpec
from experiments.store import Run


def page() -> None:
    """Draw the page for the experiment in the address, or the newest one."""
    st.title(t("two.question"), anchor=False)
    st.caption(t("two.caption"))
    run = shown_run("two", "factorial", t("two.stored"), _what)
    active = run is not None and run.state in jobs.ACTIVE
    setup(
        active=active and run is not None and may_change(run),
        cancelling=run is not None and run.cancel_requested,
        on_run=lambda: start("two", "factorial", draft),
        on_cancel=lambda: cancel("two", run),
    )
    told("two")
    if run is not None and not active and differs_from(run.spec):
        st.info(t("page.differs"))
    if run is None:
        st.markdown(t("two.intro"))
    elif active:
        live_job(run.id, _phase, t("live.keeps"))
    elif run.result is not None:
        results(run)
    elif run.state == "failed":
        failed_run(run, t("failed.next"), lambda: _restart(run))
    else:
        st.info(t("failed.cancelled"))


def _what(run: Run) -> str:
    """Both variables with their values, and the workload."""
    factors = (f"{t(f'var.{name}')}{t('colon')}{first} → {second}" for name, (first, second) in run.spec["factors"])
    return " · ".join([*factors, workload_name(run.spec["workload"])])


def _restart(run: Run) -> None:
    tell("two", lambda: set_address(run=own_jobs.restart(run.id)))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which arm is measured."""
    arm = FactorialSpec.from_dict(run.spec).arm_names()[live["arm"]]
    if live["phase"] == "running":
        return t("live.repeat", repeat=live["repeat"], repeats=live["repeats"], value=arm)
    return t(f"live.{live['phase']}" if live["phase"] in ("loading", "warmup") else "live.quality", value=arm)
