"""Advisor: what limits a run or a server, the one next change with what it should do, and how often that was right."""

from __future__ import annotations

import streamlit as st

from app.components.advisor_results import advice, causes
from app.components.advisor_score import score_table
from app.components.advisor_setup import Question, setup
from app.components.advisor_test import start, tested
from app.components.inputs import passed_over
from app.components.section import escape
from app.components.stored_job import tell, told
from app.components.undo import undo_button
from app.state import store, t, translated
from experiments.advisor_view import Asked, asked
from ledger.errors import CannotRunError, InputError

PAGE = "advisor"


def page() -> None:
    """Draw the question, the answer, the test of the answer and the score of all of them."""
    st.title(t("advisor.question"), anchor=False)
    st.caption(t("advisor.caption"))
    question = setup(PAGE)
    passed_over(PAGE)
    undo_button(PAGE)
    told(PAGE)
    if question is None:
        st.markdown(t("advisor.intro"))
    else:
        _answered(question)
    tested(PAGE)
    score_table()


def _answered(question: Question) -> None:
    try:
        with st.spinner(t("advisor.reading")):
            found = _asked(question, _store_state(question))
    except (InputError, CannotRunError) as error:
        st.error(t("failed.input_error", error=escape(translated(str(error)))))
        return
    causes(found.diagnosis)
    if found.advice is not None:
        advice(found.advice, lambda made: tell(PAGE, lambda: start(made)))


@st.cache_data(max_entries=8, show_spinner=False)
def _asked(question: Question, state: str) -> Asked:
    """The answer; state keys the cache, since earlier runs and calibrations move a prediction."""
    run = None if question.run_id is None else store().get_run(question.run_id)
    return asked(question.evidence(store()), run, question.arm, store())


def _store_state(question: Question) -> str:
    """What a prediction depends on beside the question: comparisons, evaluations and calibrations that are there."""
    from experiments.simulator.calibration import stored

    if question.run_id is None:
        return ""
    dates = ",".join(entry["date"] for entry in stored())
    done = [store().count_runs(kind=kind, state="done") for kind in ("compare", "eval")]
    return f"{store().path} {done} {dates}"
