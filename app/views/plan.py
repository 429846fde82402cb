"""Simulate & plan: one deployment on hardware that is not here, or the search for the cheapest one."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components.inputs import segments
from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.components.plan_results import results
from app.components.plan_setup import setup
from app.components.simulate_parts import simulate
from app.state import t
from experiments.store import Run

PAGE = "plan"
PLAN, ONE = "plan", "one"


def page() -> None:
    """Draw the half that the address asks for."""
    above = st.container()
    half = segments(PAGE, "half", t("plan.half"), (PLAN, ONE), PLAN, lambda name: t(f"plan.half_{name}"))
    if half == ONE:
        simulate(PAGE, above)
    else:
        job_page(JobPage(PAGE, "plan", _what, setup, _live, results), above)


def _what(run: Run) -> str:
    spec = run.spec
    return f"{spec['model']}, {spec['rate_rps']:g}/s, {', '.join(spec['gpus'])}"


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("plan.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    return t("plan.phase")
