"""The steps of one lab: prediction, experiment, outcome beside prediction, questions, score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.failed import failed_run
from app.components.job_live import live_job
from app.components.run_button import run_button
from app.components.section import escape
from app.components.stored_job import cancel, tell, told
from app.state import badge, language, t
from app.visitor import visitor
from experiments import jobs
from experiments.labs import LabSession
from experiments.labs.grade import TRIES, shown_choices
from experiments.labs.lab import Question
from experiments.labs.view import in_unit
from experiments.labs.words import say
from experiments.store import Run


def predict(session: LabSession) -> None:
    """What the learner expects: asked once, then shown."""
    lang, asked = language(), session.lab.prediction
    words = session.texts(lang).prediction
    st.markdown(f"## {say(lang, 'step.predict')}\n\n{session.asking(words['ask'], lang)}")
    if session.kept["prediction"] is not None:
        st.info(say(lang, "kept_prediction", prediction=session.predicted(lang)), icon=":material/lock:")
        return
    told("labs-predict")
    with st.form("labs-predict", border=False):
        if asked.choices:
            st.radio(
                say(lang, "prompt.predict"), asked.choices, index=None, key="prediction",
                format_func=lambda one: words["choices"][one],
            )  # fmt: skip
        else:
            _number(say(lang, "prompt.predict"), asked.unit, "prediction")
        st.form_submit_button(
            t("labs.lock_in"), type="primary", icon=":material/lock:",
            on_click=lambda: tell("labs-predict", lambda: session.predict(st.session_state.get("prediction") or "")),
        )  # fmt: skip


def experiment(session: LabSession) -> None:
    """One click; while the job runs its progress, when it failed the reason and another try."""
    lang, run = language(), session.run()
    st.markdown(f"## {say(lang, 'step.run')}\n\n{session.text(session.texts(lang).experiment, lang)}")
    told("labs-run")
    if session.kept["figures"] is not None:
        if run is not None:
            st.caption(t("labs.run_kept", id=run.id))
        return
    active = run is not None and run.state in jobs.ACTIVE

    def start() -> None:
        session.start(started_by=visitor())

    def begin() -> None:
        tell("labs-run", start)

    if run is not None and run.state == "failed":
        failed_run(run, t("labs.failed_next"), begin)
        return
    run_button(
        active=active,
        cancelling=run is not None and run.cancel_requested,
        on_run=begin,
        on_cancel=lambda: cancel("labs-run", run),
        label="labs.run",
    )
    if active and run is not None:
        live_job(run.id, _phase, t("labs.leave"))
    elif run is not None and run.state == "cancelled":
        st.info(t("labs.cancelled"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    phase = live["phase"] if live["phase"] in ("loading", "warmup") else "running"
    return t(f"labs.phase_{phase}")


def results(session: LabSession) -> None:
    """The prediction beside the outcome, the other figures with their labels, and why."""
    lang = language()
    names, figures, compared = session.texts(lang).figures, session.worded(lang), session.compared(lang)
    st.markdown(f"## {say(lang, 'step.measured')}")
    with st.container(border=True):
        st.markdown(f"**{names[session.lab.prediction.figure]}**")
        left, right = st.columns(2)
        left.metric(say(lang, "predicted"), compared.predicted)
        right.metric(say(lang, compared.provenance), compared.outcome)
        if compared.ratio is not None:
            st.caption(say(lang, "over_predicted", ratio=f"{compared.ratio:.3g}"))
    rows = [(names[name], figures[name]) for name in session.shown()[1:]]
    if rows:
        head = f"| {say(lang, 'figure')} | {say(lang, 'value')} | {say(lang, 'from')} |\n| --- | ---: | --- |\n"
        body = (f"| {what} | {known.say(lang)} | {badge(known.provenance)} |" for what, known in rows)
        st.markdown(head + "\n".join(body))
    st.markdown(f"## {say(lang, 'step.why')}\n\n{session.why(lang)}")


def questions(session: LabSession) -> None:
    """Every question, graded as it is answered."""
    lang = language()
    st.markdown(f"## {say(lang, 'step.questions')}")
    for place, question in enumerate(session.lab.questions, 1):
        with st.container(border=True, key=f"question-{question.id}"):
            ask = session.asking(session.texts(lang).questions[question.id]["ask"], lang)
            st.markdown(f"**{place}.** {ask}")
            if not session.is_settled(question):
                _form(session, question)
            _graded(session, question)


def _form(session: LabSession, question: Question) -> None:
    lang, key = language(), f"answer-{question.id}"
    told(f"labs-{question.id}")
    with st.form(f"form-{question.id}", border=False):
        read = _input(session, question, key)

        def check() -> None:
            session.answer(question.id, read())

        st.form_submit_button(
            t("labs.check"),
            on_click=lambda: tell(f"labs-{question.id}", check),
        )
    tries = len(TRIES) - len(session.attempts(question))
    if tries < len(TRIES):
        st.caption(say(lang, "tries_left", left=tries, tries=len(TRIES)))


def _input(session: LabSession, question: Question, key: str) -> Callable[[], str]:
    """The input for a kind of question, and how to read what was entered."""
    lang, shown = language(), shown_choices(session.lab, question)
    words = session.texts(lang).questions[question.id].get("choices", {})
    label = say(lang, "prompt.answer")

    def name(one: str) -> str:
        return session.asking(words[one], lang)

    if question.kind == "number":
        _number(label, question.unit, key)
        return lambda: st.session_state.get(key) or ""
    if question.kind == "choice":
        st.radio(label, shown, index=None, format_func=name, key=key, label_visibility="collapsed")
        return lambda: st.session_state.get(key) or ""
    if question.kind == "many":
        for one in shown:
            st.checkbox(name(one), key=f"{key}-{one}")
        return lambda: ",".join(one for one in shown if st.session_state.get(f"{key}-{one}"))
    st.multiselect(t("labs.in_order"), shown, format_func=name, key=key, placeholder=t("labs.choose"))
    return lambda: ",".join(st.session_state.get(key) or ())


def _number(label: str, unit: str, key: str) -> None:
    st.text_input(f"{label}{in_unit(unit, language())}", key=key, placeholder=t("labs.number"))


def _graded(session: LabSession, question: Question) -> None:
    """What every try was told, and the solution when nothing more is to be answered."""
    lang = language()
    names = session.texts(lang).questions[question.id].get("choices", {})
    for attempt in session.attempts(question):
        box = {"right": st.success, "open": st.info}.get(attempt["verdict"], st.warning)
        given = ", ".join(names.get(one, one) for one in attempt["text"].split(","))
        box(f"{escape(given)}{t('colon')}{session.verdict(question, attempt, lang)}")
    if session.is_settled(question):
        st.markdown(session.solution(question, lang))


def score_line(session: LabSession) -> None:
    """Points, share, and whether that passes."""
    lang, found = language(), session.score()
    st.markdown(f"## {say(lang, 'step.score')}")
    percent = 100 * (found.share or 0)
    points = say(lang, "score", points=f"{found.points:g}", of=f"{found.of:g}", percent=f"{percent:.0f}")
    mark = say(lang, "passed" if found.passed else "not_passed", mark=f"{100 * session.lab.pass_mark:.0f}")
    st.progress(min(1.0, found.share or 0.0))
    (st.success if found.passed else st.info)(f"{points} {mark}")
