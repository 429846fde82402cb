"""Every written question in both languages: a correct learner passes, wrong ones don't, and the traps are taught."""

from __future__ import annotations

import re
import tomllib
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from experiments.interview import rubric
from experiments.interview.answering import answer, feedback, unanswered
from experiments.interview.bank import ChoiceQuestion, FixedQuestion, OpenQuestion, bank
from experiments.interview.items import TOPICS, form_of, item, names, pick, title_of, topic_of
from experiments.interview.words import LANGUAGES, number
from ledger.errors import InputError

OPEN = [name for name, one in bank().items() if isinstance(one, OpenQuestion)]
CHOICE = [name for name, one in bank().items() if isinstance(one, ChoiceQuestion)]
FIXED = [name for name, one in bank().items() if isinstance(one, FixedQuestion)]
BOTH = pytest.mark.parametrize("lang", LANGUAGES)
EVERYDAY, NOT_SAID = (
    tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8")) for name in ("everyday", "not_said")
)
CJK = re.compile(r"[一-鿿]")
EMPTY_TALK = {
    "en": "It depends on the situation, and one should think about it carefully before one decides.",
    "zh": "这个问题要看具体情况，需要仔细考虑之后再做决定。",
}


def open_question(name: str) -> OpenQuestion:
    found = bank()[name]
    assert isinstance(found, OpenQuestion)
    return found


def choice_question(name: str) -> ChoiceQuestion:
    found = bank()[name]
    assert isinstance(found, ChoiceQuestion)
    return found


def test_there_are_enough_and_the_worked_ones_and_follow_ups_are_among_them() -> None:
    sources = [one.source for one in bank().values()]
    assert [s for s in sources if s.startswith("worked")] == [f"worked question {n}" for n in (1, 2, 3)]
    assert [s for s in sources if s.startswith("follow-up")] == [f"follow-up {n}" for n in range(1, 11)]
    assert len(names()) - 13 >= 60
    assert {topic_of(name) for name in names()} == set(TOPICS)
    assert all("C47" in one.claims for one in bank().values() if one.source.startswith("follow-up"))


@BOTH
@pytest.mark.parametrize("name", list(bank()))
def test_the_texts_are_in_their_language_and_complete(name: str, lang: Any) -> None:
    one = bank()[name]
    texts = one.texts(lang)
    parts = {
        OpenQuestion: {"title", "ask", "answer", "points"},
        ChoiceQuestion: {"title", "ask", "options"},
        FixedQuestion: {"title", "ask", "remark"},
    }
    assert set(texts) - {"wrong"} == parts[type(one)]
    assert bool(CJK.search(texts["ask"])) == (lang == "zh")
    assert one.topic in TOPICS and title_of(name, lang)


@BOTH
@pytest.mark.parametrize("name", OPEN)
def test_the_model_answer_has_every_point_and_nothing_wrong(name: str, lang: Any) -> None:
    one = open_question(name)
    made = rubric.grade(one.rubric, one.model_answer(lang))
    assert {point: state for point, state in made.points.items() if state != rubric.FOUND} == {}
    assert made.wrong == () and made.passed and made.credit == 1


@BOTH
@pytest.mark.parametrize("name", OPEN)
def test_a_point_alone_is_partial_and_each_is_found_in_its_own_sentence(name: str, lang: Any) -> None:
    one = open_question(name)
    assert set(one.texts(lang)["points"]) == set(one.rubric.points)
    assert set(one.texts(lang).get("wrong", {})) == set(one.rubric.wrong)
    assert 2 <= one.rubric.needed <= len(one.rubric.points)
    for point in one.rubric.points:
        made = rubric.grade(one.rubric, one.point(lang, point))
        assert made.points[point] == rubric.FOUND
        assert 0 < made.credit < 1 and not made.passed, point


@pytest.mark.parametrize("name", OPEN)
def test_a_point_is_found_as_candidates_say_it(name: str) -> None:
    one = open_question(name)
    assert set(EVERYDAY[name]) == set(one.rubric.points)
    for point, sentences in EVERYDAY[name].items():
        for said in sentences:
            made = rubric.grade(one.rubric, said)
            assert (made.points[point], made.wrong) == (rubric.FOUND, ()), said


@pytest.mark.parametrize("name", OPEN)
def test_the_opposite_of_a_point_and_its_neighbours_do_not_count(name: str) -> None:
    one = open_question(name)
    assert set(NOT_SAID[name]) <= set(one.rubric.points)
    for point, sentences in NOT_SAID[name].items():
        for said in sentences:
            assert rubric.grade(one.rubric, said).points[point] != rubric.FOUND, said


def test_an_answer_to_a_question_of_another_topic_hardly_ever_passes() -> None:
    said = {name: "\n".join(sentences[0] for sentences in EVERYDAY[name].values()) for name in OPEN}
    pairs = [pair for pair in permutations(OPEN, 2) if topic_of(pair[0]) != topic_of(pair[1])]
    passed = [pair for pair in pairs if rubric.grade(open_question(pair[1]).rubric, said[pair[0]]).passed]
    assert len(passed) <= 0.01 * len(pairs), passed


@BOTH
@pytest.mark.parametrize("name", OPEN)
def test_wrong_learners_fail(name: str, lang: Any) -> None:
    one = open_question(name)
    for text in ("", EMPTY_TALK[lang], "?"):
        made = rubric.grade(one.rubric, text)
        assert not made.passed and made.credit == 0
    for wrong in one.rubric.wrong:
        said = one.wrong(lang, wrong)
        assert wrong in rubric.grade(one.rubric, said).wrong
        beside = rubric.grade(one.rubric, f"{one.model_answer(lang)}\n{said}")
        assert not beside.passed and beside.credit == 0.5


@BOTH
@pytest.mark.parametrize("name", OPEN)
def test_the_feedback_names_what_is_missing_and_what_the_check_cannot_do(name: str, lang: Any) -> None:
    one = open_question(name)
    first = next(iter(one.rubric.points))
    told = feedback(answer(item(name), one.point(lang, first)), lang)
    states = {text: state for state, text in told.points}
    assert states[one.point(lang, first)] == "found" and "missing" in states.values()
    assert told.solution == one.model_answer(lang)
    assert ("does not understand" if lang == "en" else "并不理解") in told.lines[0]


@BOTH
@pytest.mark.parametrize("name", CHOICE)
def test_a_choice_is_passed_by_the_right_letter_alone_whatever_the_order(name: str, lang: Any) -> None:
    one = choice_question(name)
    assert set(one.texts(lang)["options"]) == set(one.options) and one.right in one.options
    assert len({one.text(lang, option) for option in one.options}) == len(one.options) >= 3
    for seed in range(6):
        asked = item(f"{name}:{seed}")
        right = one.right_letter(seed)
        for letter in asked.options(lang):
            result = answer(asked, letter.upper())
            assert result.passed == (letter == right)
            told = feedback(result, lang)
            assert len(told.lines) == len(one.options) and all(len(line) > 8 for line in told.lines)
    for text in ("e", "", "ab"):
        with pytest.raises(InputError):
            answer(item(name), text)


def test_the_right_letter_is_not_always_the_same() -> None:
    letters = [choice_question(name).right_letter(seed) for name in CHOICE for seed in range(4)]
    assert all(letters.count(letter) > len(letters) / 10 for letter in "abc")


@BOTH
@pytest.mark.parametrize("name", FIXED)
def test_fixed_numeric_questions_grade_their_key_and_name_mistakes(name: str, lang: Any) -> None:
    one = bank()[name]
    assert isinstance(one, FixedQuestion)
    assert one.question.is_clear
    told = feedback(answer(item(name), number(one.question.answer)), lang)
    assert one.remark(lang) in told.lines and told.solution
    for mistake, value in one.question.mistakes.items():
        result = answer(item(name), f"{value:.8g}")
        assert not result.passed and result.mistake == mistake


# Claim -> what its popular form gets wrong, as the texts of a question about it have to say it, in both languages.
TAUGHT = {
    "C02": ("whatever the batch", "无论批多大"),
    "C04": ("1.72 TB", "1.72 TB"),
    "C05": ("28", "28"),
    "C06": ("channel", "通道"),
    "C07": ("bound by compute", "算力受限"),
    "C10": ("equal output lengths", "等长"),
    "C13": ("k + 1", "k + 1"),
    "C16": ("large batches", "批量大"),
    "C21": ("batch x heads", "批大小乘头数"),
    "C23": ("chunked prefill", "分块预填充"),
    "C25": ("twice", "两倍"),
    "C27": ("16-bit", "16 位"),
    "C34": ("12.96 billion", "129.6 亿"),
    "C37": ("0.106", "0.106"),
    "C40": ("wrong", "错误"),
    "C45": ("1.19", "1.19"),
    "C46": ("lightly loaded", "轻载"),
    "C50": ("outliers", "离群"),
}


@pytest.mark.parametrize("claim", TAUGHT)
def test_the_trap_of_a_claim_is_taught_right(claim: str) -> None:
    about = [one for one in bank().values() if claim in one.claims]
    assert about
    for lang, wanted in zip(LANGUAGES, TAUGHT[claim], strict=True):
        text = "\n".join(str(one.texts(lang)) for one in about)
        assert wanted.lower() in text.lower(), (claim, lang)


def test_a_question_is_found_by_reference_and_a_wrong_one_refused() -> None:
    assert item("f01_bottlenecks").ref == "f01_bottlenecks:0"
    assert item("kv_gqa:17").form == "numeric" and form_of("f04_exactness") == "open"
    for ref in ("nothing", "kv_gqa:x", "kv_gqa:-1", ""):
        with pytest.raises(InputError):
            item(ref)
    with pytest.raises(InputError):
        names("weather")
    assert pick(3, "cost").ref == pick(3, "cost").ref and pick(3, "cost").topic == "cost"


@BOTH
def test_no_answer_is_a_miss_that_still_teaches(lang: Any) -> None:
    for name in names():
        result = unanswered(item(f"{name}:1"))
        told = feedback(result, lang)
        assert not result.passed and result.credit == 0 and told.verdict
        assert result.to_json(lang)["graded_by"] == "not answered"
