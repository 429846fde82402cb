"""One interview question on a page: its text, the field to answer in, and what is said about an answer."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from app.components.section import escape, section_head
from app.state import language, t
from experiments.interview.answering import Result, answer, feedback
from experiments.interview.by_model import judge_of, judged
from experiments.interview.items import Item, title_of
from experiments.interview.sheet import Sheet
from experiments.interview.words import Lang, checked_lang, topic_name
from ledger.errors import CannotRunError, InputError

MARKS = {"found": ":green[✓]", "missing": ":gray[–]", "denied": ":gray[–]", "wrong": ":orange[✗]"}
ADDRESS = "http://127.0.0.1:8000"  # how one looks
Take = Callable[[Result], None]


def lang() -> Lang:
    """The reader's language, as the questions name it."""
    return checked_lang(language())


def question(asked: Item, caption: str = "") -> None:
    """The question's topic and text."""
    parts = [topic_name(lang(), asked.topic), asked.ref, *filter(None, [caption])]
    st.caption(" · ".join(map(escape, parts)))
    st.markdown(escape(asked.ask(lang())))


def field(asked: Item, place: str, take: Take) -> None:
    """The form to answer in; `take` gets the graded answer, and one that can't be read is said to the reader."""
    with st.form(f"answer-{place}-{asked.ref}", border=False):
        text = _input(asked, f"text-{place}-{asked.ref}")
        sent = st.form_submit_button(t("interview.answer"), type="primary", icon=":material/check:")
    if not sent:
        return
    if not text or not text.strip():
        st.warning(t("interview.nothing_given"))
        return
    try:
        result = answer(asked, text)
    except InputError as error:
        st.error(t("interview.unreadable", value=escape(str(error.value)), accepted=escape(error.accepted)))
        return
    take(result)
    st.rerun()


def _input(asked: Item, key: str) -> str | None:
    if asked.form == "choice":
        options = asked.options(lang())
        return st.radio(
            t("interview.choose"), list(options), None, key=key,
            format_func=lambda letter: f"{letter}. {escape(options[letter])}",
        )  # fmt: skip
    if asked.form == "open":
        return st.text_area(t("interview.own_words"), key=key, height=180, max_chars=20_000)
    return st.text_input(t("interview.number", unit=asked.unit(lang())), key=key, help=asked.hint(lang()))


def told(result: Result) -> None:
    """Verdict, points, explanations and the worked solution."""
    said = feedback(result, lang())
    show = st.success if result.passed else st.warning
    show(escape(said.verdict))
    if result.answer and result.item.form == "open":
        st.caption(t("interview.your_answer"))
        st.markdown(f"> {escape(result.answer)}".replace("\n", "\n> "))
    if said.points:
        st.markdown("\n".join(f"- {MARKS[state]} {escape(text)}" for state, text in said.points))
    for line in said.lines:
        st.markdown(escape(line))
    if said.solution:
        title = t("interview.model_answer" if result.item.form == "open" else "interview.solution")
        with st.expander(title, expanded=True, icon=":material/school:"):
            st.markdown(escape(said.solution).replace("\n", "\n\n"))


def second_opinion(result: Result) -> None:
    """A form that has a model of the reader's judge an open answer; what it says is shown and changes no score."""
    with st.expander(t("interview.judge_title"), icon=":material/rule:"):
        st.caption(t("interview.judge_help"))
        with st.form(f"judge-{result.item.ref}", border=False):
            address = st.text_input(t("interview.judge_address"), placeholder=ADDRESS)
            model = st.text_input(t("interview.judge_model"))
            key_env = st.text_input(t("interview.judge_key"))
            sent = st.form_submit_button(t("interview.judge_ask"), icon=":material/send:")
        if not sent:
            return
        try:
            with st.spinner(t("interview.judging")):
                found = judged(result, judge_of(address, model.strip() or None, key_env.strip() or None), lang())
        except (InputError, CannotRunError) as error:
            st.error(escape(str(error)))
            return
        told(found)


def sheet(found: Sheet, key: str) -> None:
    """The score by topic, and the questions that were missed."""
    frame = pd.DataFrame(
        [
            {
                t("interview.topic"): t("interview.total") if row.topic == "total" else topic_name(lang(), row.topic),
                t("interview.asked"): row.asked,
                t("interview.answered"): row.answered,
                t("interview.passed"): row.passed,
                t("interview.credit"): "" if row.credit is None else f"{row.credit:.0%}",
            }
            for row in (*found.rows, found.total)
        ]
    )
    section_head(t("interview.sheet"), t("interview.sheet_caption"), frame, key)
    st.table(frame, hide_index=True)
    if found.missed:
        names = ", ".join(title_of(name, lang()) for name in found.missed)
        st.markdown(t("interview.missed", names=escape(names)))
