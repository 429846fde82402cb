"""The Interview page: practice, a mock with its time, review, score sheet; in both languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.i18n import translate
from experiments.interview.answering import answer
from experiments.interview.bank import OpenQuestion, bank
from experiments.interview.items import Item, item, title_of
from experiments.interview.mock import Mock
from experiments.interview.progress import FILE_NAME, Progress
from experiments.interview.words import LANGUAGES, Lang, mistake_text
from tests.app.alone import page_alone, texts, used
from tests.experiments.interview.judging import server, verdict

OPEN = "f01_bottlenecks"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def stored(home: Path, *, days_ago: int = 0) -> Progress:
    return Progress(home / FILE_NAME, lambda: datetime.now(UTC) - timedelta(days=days_ago))


def said(app: AppTest) -> str:
    return "\n".join([texts(app), *(str(one.value) for one in app.success)])


def right(asked: Item) -> str:
    assert asked.numeric is not None
    return f"{asked.numeric.answer:.8g}"


def send(app: AppTest, lang: Lang) -> AppTest:
    label = translate(lang, "interview.answer")
    next(button for button in app.button if button.label == label).click().run()
    assert not app.exception
    return app


def click(app: AppTest, lang: Lang, key: str) -> AppTest:
    label = translate(lang, f"interview.{key}")
    next(button for button in app.button if button.label == label).click().run()
    assert not app.exception
    return app


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_number_is_graded_with_its_solution_and_its_mistake(home: Path, lang: Lang) -> None:
    asked = item("kv_gqa:17")
    app = page_alone("interview", lang=lang, q=asked.ref)
    assert asked.ask(lang) in said(app).replace("\\", "")
    app.text_input[0].set_value("16 G")
    send(app, lang)
    assert app.error and stored(home).answers() == []
    assert asked.numeric is not None
    app.text_input[0].set_value(f"{asked.numeric.answer / 2:.8g} GiB")
    send(app, lang)
    shown = said(app).replace("\\", "")
    assert mistake_text(lang, "k_without_v") in shown and asked.numeric.solution(lang) in shown
    assert [(one.passed, one.mistake) for one in stored(home).answers()] == [(False, "k_without_v")]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_an_open_answer_shows_its_points_and_the_limits_of_the_check(home: Path, lang: Lang) -> None:
    question = bank()[OPEN]
    assert isinstance(question, OpenQuestion)
    app = page_alone("interview", lang=lang, q=OPEN)
    app.text_area[0].set_value(question.model_answer(lang))
    send(app, lang)
    assert app.success and question.point(lang, "prefill") in said(app).replace("\\", "")
    assert stored(home).answers()[0].passed


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_model_of_the_reader_s_may_judge_and_changes_no_score(home: Path, lang: Lang) -> None:
    app = page_alone("interview", lang=lang, q=OPEN)
    app.text_area[0].set_value("?")
    send(app, lang)
    with server(json.dumps(verdict())) as (address, _):
        app.text_input[0].set_value(address)
        click(app, lang, "judge_ask")
    assert "small-judge" in said(app) and app.success
    app.text_input[0].set_value("nowhere")
    click(app, lang, "judge_ask")
    assert app.error
    assert [one.passed for one in stored(home).answers()] == [False]


def test_a_choice_explains_every_option(home: Path) -> None:
    app = page_alone("interview", q="c_tpot:3")
    app.radio[0].set_value(item("c_tpot:3").options("en").__iter__().__next__())
    send(app, "en")
    assert all(f"{letter}." in said(app) for letter in "abc")
    assert len(stored(home).answers()) == 1


def test_a_topic_gives_questions_of_that_topic_and_next_another(home: Path) -> None:
    app = page_alone("interview", topic="cost")
    first = app.query_params["q"][0] if isinstance(app.query_params["q"], list) else app.query_params["q"]
    assert item(first).topic == "cost"
    click(app, "en", "next")
    assert app.query_params["q"] not in (first, [first])


def test_an_unknown_question_of_the_address_is_passed_over(home: Path) -> None:
    assert page_alone("interview", q="nothing:1").query_params["q"] not in ("nothing:1", ["nothing:1"])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_mock_is_sat_handed_in_and_scored_without_feedback_before(home: Path, lang: Lang) -> None:
    refs = ("kv_gqa:3", "cards:3")
    stored(home).start(Mock("m1", datetime.now(UTC), 600, refs))
    app = page_alone("interview", mode="mock", mock="m1", lang=lang)
    app.text_input[0].set_value(right(item(refs[0])))
    send(app, lang)
    assert not app.success and item(refs[1]).ask(lang) in said(app).replace("\\", "")
    click(app, lang, "hand_in")
    assert stored(home).mock("m1").ended is not None
    assert translate(lang, "interview.sheet") in said(app)
    assert title_of("cards", lang) in said(app)


def test_a_mock_out_of_time_takes_no_answer(home: Path) -> None:
    stored(home).start(Mock("m2", datetime.now(UTC) - timedelta(hours=1), 600, ("kv_gqa:3",)))
    app = page_alone("interview", mode="mock", mock="m2")
    assert not app.text_input and translate("en", "interview.sheet") in said(app)
    assert stored(home).answers() == []


def test_a_mock_is_set_up_with_its_number_of_questions_and_an_unknown_one_is_said(home: Path) -> None:
    app = page_alone("interview", mode="mock", mock="gone")
    assert "gone" in said(app)
    app.number_input[0].set_value(3)
    click(app, "en", "start")
    wanted = app.query_params["mock"]
    made = stored(home).mock(wanted[0] if isinstance(wanted, list) else wanted)
    assert len(made.refs) == 3 and made.ended is None


def test_what_was_missed_comes_back_when_it_is_due(home: Path) -> None:
    app = page_alone("interview", mode="review")
    assert translate("en", "interview.due_none") in said(app)
    stored(home, days_ago=2).add(answer(item("kv_gqa:1"), "0.001"), "ask")
    app = page_alone("interview", mode="review")
    wanted = app.query_params["r"]
    asked = item(wanted[0] if isinstance(wanted, list) else wanted)
    assert asked.name == "kv_gqa"
    app.text_input[0].set_value(right(asked))
    send(app, "en")
    assert app.success and stored(home).cards()["kv_gqa"].box == 2
    click(app, "en", "next")
    assert not app.text_input


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_score_sheet_and_forgetting_it(home: Path, lang: Lang) -> None:
    assert translate(lang, "interview.no_answers") in said(page_alone("interview", mode="score", lang=lang))
    stored(home).add(answer(item("kv_gqa:1"), "0.001"), "ask")
    app = page_alone("interview", mode="score", lang=lang)
    assert title_of("kv_gqa", lang) in said(app)
    click(app, lang, "reset_yes")
    assert stored(home).answers() == []
