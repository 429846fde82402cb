"""What a question asks for is told nowhere before it is answered: not in the theory, the results, the explanation, nor
in another question or its solution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.labs import Lab, LabSession, load_labs
from experiments.labs.lab import LANGUAGES, Question
from experiments.labs.quantities import convert, dimension_of
from experiments.labs.view import before_text, lab_json, measured_text, question_text
from tests.experiments.labs.scripted import measured, right_text, scripted_jobs

__all__ = ["scripted_jobs"]
LABS = load_labs()
NUMBER = re.compile(r"[-−]?(?<![\w.,])\d[\d,]*(?:\.\d+)?")
UNITS = {
    "bytes": ("B", "KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB"),
    "seconds": ("s", "ms", "us"),
    "ratio": ("x", "%"),
}
TELLING_DIGITS = 3  # "4" and "28" stand in many texts by chance
STATEMENT_LETTERS = {"en": 25, "zh": 8}  # less is a term, which a theory has to name


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("lab", LABS, ids=[lab.id for lab in LABS])
def test_no_answer_is_told_before_it_is_given(lab: Lab, lang: str, tmp_path: Path, scripted_jobs: None) -> None:
    session = measured(lab, tmp_path, None if lab.prediction.choices else "123456789")
    asked = [question_text(session, question, lang) for question in lab.questions]
    read = {
        "texts": before_text(session, lang),
        "results": measured_text(session, lang),
        "questions": "\n".join(asked),
    }
    open_questions = list(lab.questions)
    while open_questions:
        for question in open_questions:
            for where, text in read.items():
                assert not set(_numbers(text)) & set(_renderings(session, question)), (question.id, where)
        settled = open_questions.pop(0)
        session.answer(settled.id, right_text(session, settled))
        read = {f"solution of {settled.id}": session.solution(settled, lang), "results": measured_text(session, lang)}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("lab", LABS, ids=[lab.id for lab in LABS])
def test_no_text_states_the_right_choice_word_for_word(lab: Lab, lang: str) -> None:
    texts = lab.texts[lang]
    read = _letters(" ".join([texts.goal, texts.theory, texts.experiment, texts.why, *texts.remarks.values()]))
    for question in lab.questions:
        for right in question.answer if question.kind == "choice" else ():
            said = _letters(texts.questions[question.id]["choices"][right])
            assert len(said) < STATEMENT_LETTERS[lang] or said not in read, (question.id, said)


def test_a_withheld_figure_is_shown_once_its_question_is_settled(tmp_path: Path, scripted_jobs: None) -> None:
    lab = next(lab for lab in LABS if lab.id == "triangle")
    session = measured(lab, tmp_path)
    assert "many_cost" in session.withheld() and "[asked below]" in session.why("en")
    shown = {one["name"]: one["value"] for one in lab_json(session, "zh")["results"]["figures"]}
    assert shown["many_cost"] is None and "［下面会问］" in session.why("zh")
    for question in lab.questions:
        session.answer(question.id, right_text(session, question))
    assert session.withheld() == frozenset() and "[asked below]" not in session.why("en")


def _numbers(text: str) -> Iterator[str]:
    """Every number of enough digits, as its digits before and after the point."""
    for found in NUMBER.finditer(text):
        plain = found[0].replace(",", "").replace("−", "-")
        if len(_digits(plain)) >= TELLING_DIGITS:
            yield plain


def _renderings(session: LabSession, question: Question) -> Iterator[str]:
    """The key of a number question in the units and roundings in which a text may show it."""
    if question.kind != "number" or question.figure is None:
        return
    known = session.figures[question.figure]
    for unit in UNITS.get(dimension_of(question.unit), (question.unit,)):
        value = convert(float(known.value), known.unit, unit)
        for places in range(7):
            plain = f"{value:.{places}f}"
            if len(_digits(plain)) >= TELLING_DIGITS and abs(float(plain) - value) <= 0.004 * abs(value):
                yield plain


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def _digits(plain: str) -> str:
    return plain.lstrip("-").replace(".", "").strip("0")
