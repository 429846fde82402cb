"""Parallel & PD: one model over several processes here, and prompts computed by another process than answers."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components import jitter_parts, ranks_parts
from app.components.inputs import segments
from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.components.run_words import arm_name
from app.state import store, t
from experiments.ranks_view import is_of_ranks
from experiments.store import Run
from ledger.errors import InputError

PAGE = "parallel"
RANKS, APART = "ranks", "apart"


def page() -> None:
    """Draw the half that the address asks for."""
    above = st.container()
    half = segments(
        PAGE, "half", t("parallel.half"), (RANKS, APART), _half_of_run(), lambda name: t(f"parallel.half_{name}")
    )
    if half == RANKS:
        job_page(JobPage(RANKS, "claim", _ranks, ranks_parts.setup, _live, ranks_parts.results, own=is_of_ranks), above)
    else:
        job_page(JobPage(APART, "jitter", _arms, jitter_parts.setup, _live, jitter_parts.results), above)


def _half_of_run() -> str:
    """The half that the run of the address belongs to, so that a link to a run alone shows it."""
    asked = st.query_params.get("run")
    try:
        return APART if asked and store().get_run(asked).kind == "jitter" else RANKS
    except InputError:
        return RANKS


def _ranks(run: Run) -> str:
    return t("ranks.runs", repeats=run.spec["options"].get("repeats", "auto"))


def _arms(run: Run) -> str:
    return t("list_join").join(arm_name(name) for name, _ in run.spec["arms"])


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("parallel.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    if live["phase"] != "running":
        return t("parallel.phase_loading")
    return t("parallel.phase_running", arm=arm_name(run.spec["arms"][live["arm"]][0]),
             repeat=live["repeat"], of=live["repeats"])  # fmt: skip
