"""The top of the Advisor page: where the evidence is from, and the objectives it is judged by."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app.components.empty import empty
from app.components.inputs import choice, decimal, segments
from app.components.objectives import objectives
from app.components.run_words import run_words
from app.components.section import escape
from app.state import store, t
from experiments.advisor.evidence import Evidence
from experiments.advisor_view import (
    arm_names_of,
    evidence_of_metrics,
    evidence_of_numbers,
    evidence_of_run,
    runs_to_ask_about,
)
from experiments.store import Run, Store

RUN, METRICS, NUMBERS = "run", "metrics", "numbers"
NUMBERS_EXAMPLE = """ttft_s = { p95 = 9.5 }
itl_s = { p50 = 0.031, p99 = 0.048 }
latency_breakdown = { queue_s = 4.0, prefill_s = 0.15, decode_s = 7.6 }
load = { offered_rps = 6.0, running = 64, waiting = 41 }
config = { max_num_seqs = 64 }"""


@dataclass(frozen=True)
class Question:
    """What is asked: a stored run and its arm, or texts that were pasted."""

    kind: str
    slo: str
    run_id: str | None = None
    arm: int = 0
    first: str = ""
    later: str = ""
    seconds: float = 0.0

    def evidence(self, runs: Store) -> Evidence:
        """The numbers; InputError and CannotRunError where they can't be had."""
        if self.run_id is not None:
            return evidence_of_run(self.run_id, runs, self.arm, self.slo)
        if self.kind == METRICS:
            return evidence_of_metrics(self.first, self.later, self.seconds, self.slo)
        return evidence_of_numbers(self.first, self.slo)


def setup(page: str) -> Question | None:
    """Draw the inputs; None while there is nothing to ask about."""
    with st.container(border=True):
        kind = segments(page, "from", t("advisor.from"), (RUN, METRICS, NUMBERS), RUN, lambda one: t(f"advisor.{one}"))
        left, right = st.columns([3, 2], vertical_alignment="bottom")
        with right:
            slo = objectives(page, "advisor.slo", "advisor.slo_help")
        with left:
            run = _run(page) if kind == RUN else None
            if kind != RUN:
                st.caption(t(f"advisor.{kind}_help"))
        if kind == RUN:
            return None if run is None else Question(kind, slo, run.id, _arm(page, run))
        return _pasted(page, kind, slo)


def _run(page: str) -> Run | None:
    runs = runs_to_ask_about(store(), st.query_params.get("run"))
    if not runs:
        empty(t("advisor.no_runs"), t("empty.to_workbench"), "workbench", "science")
        return None
    labels = {run.id: _label(run) for run in runs}
    chosen = choice(page, "run", t("advisor.which_run"), list(labels), runs[0].id, labels.__getitem__)
    return next(run for run in runs if run.id == chosen)


def _label(run: Run) -> str:
    return f"{run.created_at[:16].replace('T', ' ')} UTC · {run_words(run)} · {run.id}"


def _arm(page: str, run: Run) -> int:
    names = arm_names_of(run)
    if not names:
        return 0
    arms = [str(place) for place in range(len(names))]
    chosen = segments(page, "arm", t("advisor.arm"), arms, "0", lambda place: escape(names[int(place)]))
    return int(chosen)


def _pasted(page: str, kind: str, slo: str) -> Question | None:
    example = NUMBERS_EXAMPLE if kind == NUMBERS else None
    first = st.text_area(t(f"advisor.{kind}_text"), height=200, key=f"{page}-{kind}-text", placeholder=example)
    later, seconds = "", 0.0
    if kind == METRICS:
        with st.expander(t("advisor.later"), expanded=True):
            st.caption(t("advisor.later_help"))
            later = st.text_area(t("advisor.later_text"), height=120, key=f"{page}-later-text")
            seconds = decimal(page, "apart", t("advisor.seconds"), 0.0, 0.0, 86_400.0)
    return Question(kind, slo, None, 0, first, later, seconds) if first.strip() else None
