"""Interview: practise one question, sit a timed mock interview, review what was missed, see the score by topic."""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from app.components import interview_parts as parts
from app.components.empty import empty
from app.components.inputs import choice, clear, decimal, passed_over, segments, whole
from app.components.live import duration
from app.components.section import escape
from app.state import sentences, set_address, t
from experiments.interview.answering import Result, answer, unanswered
from experiments.interview.items import TOPICS, Item, fresh_seed, item, pick, title_of
from experiments.interview.mock import MOST_MINUTES, MOST_QUESTIONS, Mock, minutes, new_id, plan
from experiments.interview.progress import Mode, Progress
from experiments.interview.sheet import mock_score, score
from experiments.interview.words import topic_name
from ledger.errors import InputError

PAGE = "interview"
MODES = ("practice", "mock", "review", "score")
ALL = "all"
RESULTS = "interview-results"  # mode:ref -> the result just given, for as long as the browser stays


@st.cache_resource
def progress() -> Progress:
    """The learner's file, opened once."""
    return Progress()


def page() -> None:
    """Draw the page for the mode of the address."""
    st.title(t("interview.title"), anchor=False)
    st.caption(t("interview.caption"))
    mode = segments(PAGE, "mode", t("interview.mode"), MODES, "practice", lambda name: t(f"interview.{name}"))
    passed_over(PAGE)
    {"practice": _practice, "mock": _mock, "review": _review, "score": _score}[mode]()


def _practice() -> None:
    wanted = _topic()
    asked = _asked("q")
    if asked is None or (wanted is not None and asked.topic != wanted):
        asked = _new("q", pick(fresh_seed(), wanted))
    with st.container(border=True):
        _one(asked, "ask")
    if st.button(t("interview.next"), icon=":material/arrow_forward:", key="next-practice"):
        _new("q", pick(fresh_seed(), wanted))
        st.rerun()


def _review() -> None:
    waiting = progress().due()
    asked = _asked("r")
    if asked is None or (_result("review", asked) is None and asked.name not in {card.name for card in waiting}):
        if not waiting:
            _nothing_due()
            return
        asked = _new("r", item(f"{waiting[0].name}:{fresh_seed()}"))
    st.caption(t("interview.due", count=len(waiting)))
    with st.container(border=True):
        _one(asked, "review")
    if st.button(t("interview.next"), icon=":material/arrow_forward:", key="next-review"):
        set_address(r=None)
        st.rerun()


def _nothing_due() -> None:
    later = min((card.due for card in progress().cards().values()), default=None)
    st.info(t("interview.due_none") if later is None else t("interview.due_next", when=_when(later)))
    st.caption(t("interview.boxes"))


def _score() -> None:
    stored = progress().answers()
    if not stored:
        empty(t("interview.no_answers"), t("interview.practice"), lambda: clear(PAGE, "mode"), "quiz")
        return
    parts.sheet(score(stored), "interview-score")
    st.caption(sentences([t("interview.due", count=len(progress().due())), t("interview.boxes")]))
    with st.popover(t("interview.reset"), icon=":material/delete:"):
        st.markdown(t("interview.reset_sure"))
        if st.button(t("interview.reset_yes"), type="primary"):
            progress().reset()
            st.session_state.pop(RESULTS, None)
            set_address(mock=None, place=None, q=None, r=None)
            st.rerun()


def _mock() -> None:
    made = _stored_mock()
    if made is None:
        _setup()
    elif made.is_over(progress().now()):
        progress().end(made)
        _handed_in(made)
    else:
        _sit(made)


def _stored_mock() -> Mock | None:
    wanted = st.query_params.get("mock")
    if wanted is None:
        return None
    try:
        return progress().mock(wanted)
    except InputError:
        st.warning(t("interview.unknown_mock", id=escape(wanted[:40])))
        return None


def _setup() -> None:
    with st.container(border=True):
        first, second, third = st.columns(3)
        with first:
            count = whole(PAGE, "questions", t("interview.questions"), 10, 1, MOST_QUESTIONS)
        with second:
            limit = decimal(PAGE, "minutes", t("interview.minutes"), 30.0, 1.0, MOST_MINUTES, format="%g")
        with third:
            topic = _topic()
        started = st.button(t("interview.start"), type="primary", icon=":material/timer:")
    st.caption(t("interview.mock_caption"))
    if not started:
        return
    try:
        refs = plan(fresh_seed(), count, topic)
    except InputError as error:
        st.error(t("interview.unreadable", value=escape(str(error.value)), accepted=escape(error.accepted)))
        return
    made = Mock(new_id(), progress().now(), minutes(limit), refs)
    progress().start(made)
    set_address(mock=made.id, place=0)
    st.rerun()


def _sit(made: Mock) -> None:
    given = {one.place for one in progress().answers(made.id)}
    place = _place(made, given)
    _timer(made, len(given))
    asked = item(made.refs[place])
    with st.container(border=True):
        parts.question(asked, t("interview.of", place=place + 1, count=len(made.refs)))
        if place in given:
            st.info(t("interview.taken"))
        else:
            parts.field(asked, made.id, lambda result: _take(made, place, result, given))
    with st.container(horizontal=True):
        if st.button(t("interview.back"), icon=":material/arrow_back:", disabled=place == 0):
            _go(place - 1)
        if st.button(t("interview.forward"), icon=":material/arrow_forward:", disabled=place + 1 == len(made.refs)):
            _go(place + 1)
        if st.button(t("interview.hand_in"), icon=":material/done_all:"):
            progress().end(made)
            st.rerun()


def _place(made: Mock, given: set[int | None]) -> int:
    """The question of the address, else the first without an answer."""
    text = st.query_params.get("place", "")
    if text.isdecimal() and int(text) < len(made.refs):
        return int(text)
    return next((place for place in range(len(made.refs)) if place not in given), 0)


def _go(place: int) -> None:
    set_address(place=place)
    st.rerun()


def _take(made: Mock, place: int, result: Result, given: set[int | None]) -> None:
    """Store an answer while there is time, and go on to the next question without one."""
    if made.is_over(progress().now()):
        return
    progress().add(result, "mock", made.id, place)
    left = [other for other in range(len(made.refs)) if other not in given and other != place]
    set_address(place=next((other for other in left if other > place), left[0] if left else place))


@st.fragment(run_every=1.0)
def _timer(made: Mock, given: int) -> None:
    now = progress().now()
    left = made.left_s(now)
    if made.is_over(now):
        st.rerun()
    st.progress(made.left_share(now), t("interview.left", time=duration(left), given=given, count=len(made.refs)))


def _handed_in(made: Mock) -> None:
    stored = progress().answers(made.id)
    parts.sheet(mock_score(made, stored), f"interview-{made.id}")
    by_place = {one.place: one for one in stored}
    for place, ref in enumerate(made.refs):
        asked, one = item(ref), by_place.get(place)
        result = unanswered(asked) if one is None else answer(asked, one.answer)
        mark = "✓" if result.passed else "✗"
        with st.expander(f"{mark} {place + 1}. {escape(title_of(asked.name, parts.lang()))}"):
            parts.question(asked)
            for letter, text in asked.options(parts.lang()).items():
                st.markdown(f"{letter}. {escape(text)}")
            parts.told(result)
    if st.button(t("interview.another"), icon=":material/replay:"):
        set_address(mock=None, place=None)
        st.rerun()


def _one(asked: Item, mode: Mode) -> None:
    """A question with its field, or with what was said about its answer."""
    parts.question(asked)
    result = _result(mode, asked)
    if result is None:
        parts.field(asked, mode, lambda made: _keep(mode, made))
        return
    for letter, text in asked.options(parts.lang()).items():
        st.markdown(f"{letter}. {escape(text)}")
    parts.told(result)
    if result.grade is not None:
        parts.second_opinion(result)


def _keep(mode: Mode, result: Result) -> None:
    progress().add(result, mode)
    st.session_state.setdefault(RESULTS, {})[f"{mode}:{result.item.ref}"] = result


def _result(mode: Mode, asked: Item) -> Result | None:
    found: Result | None = st.session_state.get(RESULTS, {}).get(f"{mode}:{asked.ref}")
    return found


def _asked(name: str) -> Item | None:
    """The question of the address; None without one, or for one that does not exist."""
    wanted = st.query_params.get(name)
    try:
        return None if wanted is None else item(wanted)
    except InputError:
        return None


def _new(name: str, asked: Item) -> Item:
    set_address(**{name: asked.ref})
    return asked


def _topic() -> str | None:
    """The topic that questions are to be of; None for any."""
    labels = {ALL: t("interview.all_topics"), **{name: topic_name(parts.lang(), name) for name in TOPICS}}
    chosen = choice(PAGE, "topic", t("interview.topic"), list(labels), ALL, labels.__getitem__)
    return None if chosen == ALL else chosen


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
