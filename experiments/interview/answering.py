"""An answer graded, with all that a reader is told about it. One shape for every form of question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiments.interview import rubric
from experiments.interview.bank import ChoiceQuestion, FixedQuestion, OpenQuestion
from experiments.interview.items import Item
from experiments.interview.words import Lang, mistake_text, number, say
from ledger.errors import InputError

MOST_CHARACTERS = 20_000


@dataclass(frozen=True)
class Feedback:
    """verdict: one sentence. lines: what goes with it. points: (state, sentence) of an open question's key points.
    solution: the worked way, or a model answer.
    """

    verdict: str
    lines: tuple[str, ...] = ()
    points: tuple[tuple[str, str], ...] = ()
    solution: str = ""


@dataclass(frozen=True)
class Result:
    """An answer to an item. credit 0 to 1; `mistake` the name of the one that a number equals; `graded_by` how."""

    item: Item
    answer: str
    passed: bool
    credit: float
    mistake: str | None = None
    graded_by: str = "key"
    details: dict[str, Any] = field(default_factory=dict)
    grade: rubric.OpenGrade | None = None

    def to_json(self, lang: Lang) -> dict[str, Any]:
        """The result and its feedback, plain."""
        told = feedback(self, lang)
        return {
            "question": self.item.ref,
            "topic": self.item.topic,
            "form": self.item.form,
            "answer": self.answer,
            "passed": self.passed,
            "credit": self.credit,
            "mistake": self.mistake,
            "graded_by": self.graded_by,
            "verdict": told.verdict,
            "lines": list(told.lines),
            "points": [{"state": state, "text": text} for state, text in told.points],
            "solution": told.solution,
            **self.details,
        }


def answer(item: Item, text: str) -> Result:
    """Grade an answer. InputError for text that can't be one: no quantity, no letter of the options, too long."""
    if len(text) > MOST_CHARACTERS:
        raise InputError("answer", f"{len(text):,} characters", f"at most {MOST_CHARACTERS:,}")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise InputError("answer", "bytes that are no UTF-8", "text in UTF-8")
    question, numeric = item.question, item.numeric
    if numeric is not None:
        found = numeric.grade(text)
        details = {"value": found.value, "key": numeric.answer, "unit": numeric.kind.unit}
        return Result(item, text, found.correct, float(found.correct), found.mistake, details=details)
    if isinstance(question, ChoiceQuestion):
        letter = question.chosen(text, item.seed)
        right = question.right_letter(item.seed)
        return Result(item, letter, letter == right, float(letter == right), details={"right": right})
    assert isinstance(question, OpenQuestion)
    made = rubric.grade(question.rubric, text)
    return Result(item, text, made.passed, made.credit, graded_by="key terms", grade=made)


def unanswered(item: Item) -> Result:
    """What a question without an answer counts: nothing."""
    return Result(item, "", False, 0.0, graded_by="not answered")


def feedback(result: Result, lang: Lang) -> Feedback:
    """What the reader is told, in their language."""
    question, numeric = result.item.question, result.item.numeric
    if numeric is not None:
        return _numeric(result, lang)
    if isinstance(question, ChoiceQuestion):
        return _choice(result, question, lang)
    assert isinstance(question, OpenQuestion)
    return _open(result, question, lang)


def _numeric(result: Result, lang: Lang) -> Feedback:
    numeric = result.item.numeric
    assert numeric is not None
    unit, key = result.item.unit(lang), number(numeric.answer)
    if result.passed:
        verdict = say(lang, "right", answer=key, unit=unit)
    else:
        verdict = say(lang, "wrong", answer=key, unit=unit, given=_given(result, unit))
    lines = [] if result.mistake is None else [say(lang, "mistake", text=mistake_text(lang, result.mistake))]
    exact = numeric.kind.whole and not numeric.kind.tolerance
    lines.append(say(lang, "tolerance_count" if exact else "tolerance", percent=100 * numeric.kind.tolerance))
    if isinstance(result.item.question, FixedQuestion):
        lines.append(result.item.question.remark(lang))
    return Feedback(verdict, tuple(lines), solution=numeric.solution(lang))


def _given(result: Result, unit: str) -> str:
    """What was answered, as it was written where that has another unit than the one asked for."""
    if "value" not in result.details:
        return "-"
    value, written = f"{number(result.details['value'])} {unit}", result.answer.strip()
    has_unit = any(char.isalpha() or char in "%$" for char in written)
    return f"{written} = {value}" if has_unit and unit.lower() not in written.lower() else value


def _choice(result: Result, question: ChoiceQuestion, lang: Lang) -> Feedback:
    shown, right = question.shown(result.item.seed), question.right_letter(result.item.seed)
    if result.passed:
        verdict = say(lang, "right_choice", letter=right)
    else:
        verdict = say(lang, "wrong_choice", letter=result.answer or "-", right=right)
    lines = tuple(f"{letter}. {question.why(lang, option)}" for letter, option in shown.items())
    return Feedback(verdict, lines)


def _open(result: Result, question: OpenQuestion, lang: Lang) -> Feedback:
    made = result.grade or rubric.grade(question.rubric, "")
    key = "open_pass" if made.passed else "open_wrong" if made.wrong else "open_fail"
    verdict = say(lang, key, covered=made.covered, points=len(made.points), needed=made.needed)
    points = [(state, question.point(lang, name)) for name, state in made.points.items()]
    points += [("wrong", question.wrong(lang, name)) for name in made.wrong]
    limits = say(lang, "limits")
    if result.graded_by.startswith("model"):
        limits = say(lang, "by_model", **result.details["judge"])
    return Feedback(verdict, (limits,), tuple(points), question.model_answer(lang))
