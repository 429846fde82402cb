"""Labs: the list with the learner's progress, and one lab step by step. Deep link: ?lab=ID."""

from __future__ import annotations

import streamlit as st

from app.components.lab_steps import experiment, predict, questions, results, score_line
from app.components.section import escape
from app.components.stored_job import tell, told
from app.state import language, set_address, store, t
from experiments.labs import DEFAULT_LEARNER, LabSession, Progress, get_lab, load_labs
from experiments.labs.lab import Lab
from experiments.labs.words import say
from ledger.errors import InputError

MARKS = {"passed": ":material/check_circle:", "new": ":material/radio_button_unchecked:"}


def page() -> None:
    """Draw the lab in the address, or the list of all."""
    asked = st.query_params.get("lab")
    if asked is None:
        _list()
        return
    try:
        lab = get_lab(asked)
    except InputError:
        st.warning(t("labs.unknown", id=escape(asked)))
        _list()
        return
    _lab(_session(lab))


def _session(lab: Lab) -> LabSession:
    """With the figures of a run that has ended since."""
    session = LabSession(lab, Progress(st.query_params.get("learner") or DEFAULT_LEARNER), store())
    session.collect()
    return session


# -- the list --------------------------------------------------------------------------------------------------------


def _list() -> None:
    st.title(t("labs.question"), anchor=False)
    st.caption(t("labs.caption"))
    sessions = [_session(lab) for lab in load_labs()]
    passed = sum(session.state == "passed" for session in sessions)
    st.progress(passed / len(sessions), text=t("labs.passed", passed=passed, all=len(sessions)))
    for session in sessions:
        _row(session)


def _row(session: LabSession) -> None:
    lab, texts, state = session.lab, session.texts(language()), session.state
    with st.container(border=True, key=f"lab-{lab.id}"):
        words, button = st.columns([4, 1.2], vertical_alignment="center")
        with words:
            st.markdown(f"**{texts.title}**  \n{texts.summary}")
            mark = MARKS.get(state, ":material/pending:")
            parts = [f"{mark} {say(language(), f'state.{state}')}", *_share(session), *_facts(lab)]
            st.caption(" · ".join(parts))
        button.button(
            t("labs.begin" if state == "new" else "labs.go_on"),
            key=f"open-{lab.id}",
            on_click=lambda: set_address(lab=lab.id),
            width="stretch",
        )


def _share(session: LabSession) -> list[str]:
    found = session.score()
    return [] if not found.answered or found.share is None else [f"{100 * found.share:.0f} %"]


def _facts(lab: Lab) -> list[str]:
    return [say(language(), "minutes", minutes=lab.minutes), t("labs.claims", claims=", ".join(lab.claims))]


# -- one lab ---------------------------------------------------------------------------------------------------------


def _lab(session: LabSession) -> None:
    """Each step stands when its turn has come."""
    lab, texts, lang = session.lab, session.texts(language()), language()
    st.button(t("labs.back"), icon=":material/arrow_back:", type="tertiary", on_click=lambda: set_address(lab=None))
    st.title(texts.title, anchor=False)
    st.caption(f"{texts.summary}  \n{' · '.join(_facts(lab))}")
    told("labs")
    for step, text in (("goal", texts.goal), ("theory", texts.theory)):
        st.markdown(f"## {say(lang, f'step.{step}')}\n\n{session.text(text, lang)}")
    predict(session)
    if session.kept["prediction"] is not None:
        experiment(session)
    if session.kept["figures"] is not None:
        results(session)
        questions(session)
        score_line(session)
    st.markdown(f"## {say(lang, 'step.reading')}\n\n" + "\n".join(f"- {title}" for title in lab.reading))
    _reset(session)


def _reset(session: LabSession) -> None:
    if session.state == "new":
        return
    with st.popover(t("labs.reset"), icon=":material/restart_alt:"):
        st.markdown(t("labs.reset_help"))
        st.button(t("labs.reset_yes"), key="reset", on_click=lambda: tell("labs", session.reset))
