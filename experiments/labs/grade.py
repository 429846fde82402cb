"""Grades one answer: a number within its tolerance, a choice, several, an order; and names the mistake behind it.

Pure: knows figures and words, no file and no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

from experiments.labs.figures import Figures
from experiments.labs.lab import Lab, Question
from experiments.labs.mistakes import mistake_behind
from experiments.labs.quantities import convert, parse_quantity
from ledger.errors import InputError

TRIES = (1.0, 0.5, 0.25)  # what a right answer is worth at the first, second and third try
CLOSE_BY = 3.0  # tolerances within which a number is worth CLOSE_CREDIT
CLOSE_CREDIT = 0.5
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Grade:
    """credit: of the question, 0 to 1, before tries are counted. verdict: right, close, partly, wrong or open.

    open: the run could not tell the answer, so that the question doesn't count. mistake: its name; chosen: distractors
    that were taken, whose explanations belong beside the verdict.
    """

    credit: float
    verdict: str
    mistake: str | None = None
    chosen: tuple[str, ...] = ()


def check_answer(lab: Lab, question: Question, text: str) -> float | tuple[str, ...]:
    """What was answered, as a number in the question's unit or as ids of choices; InputError for anything else."""
    if question.kind == "number":
        return parse_quantity(text, question.unit)
    parts = [part for part in text.replace("，", ",").replace("、", ",").replace(">", ",").split(",") if part.strip()]
    if len(parts) == 1 and question.kind != "choice" and len(parts[0].split()) > 1:
        parts = parts[0].split()
    chosen = tuple(choice_of(lab, question, part.strip()) for part in parts)
    wanted = {"choice": len(chosen) == 1, "many": len(chosen) >= 1, "order": len(chosen) == len(question.choices)}
    if not wanted[question.kind] or len(set(chosen)) < len(chosen):
        raise InputError("answer", text[:60], _accepted(question))
    return chosen


def choice_of(lab: Lab, question: Question, text: str) -> str:
    """The id that a letter or an id stands for; InputError for another."""
    shown = shown_choices(lab, question)
    if text in shown:
        return text
    place = LETTERS.find(text.lower()) if len(text) == 1 else -1
    if not 0 <= place < len(shown):
        raise InputError("answer", text[:60], _accepted(question))
    return shown[place]


def shown_choices(lab: Lab, question: Question) -> tuple[str, ...]:
    """The choices in the order in which a learner sees them: an order question must not show the answer."""
    if question.kind != "order":
        return question.choices
    mixed = tuple(sorted(question.choices, key=lambda one: sha256(f"{lab.id} {question.id} {one}".encode()).digest()))
    return mixed if mixed != question.answer else mixed[::-1]


def _accepted(question: Question) -> str:
    letters = ", ".join(LETTERS[: len(question.choices)])
    return {
        "choice": f"one of {letters}",
        "many": f"one or more of {letters}, with commas between",
        "order": f"all of {letters} in the right order, with commas between",
    }[question.kind]


def right_answer(question: Question, figures: Figures) -> float | tuple[str, ...] | None:
    """The right answer: a number in the question's unit, or ids; None where the run could not tell it."""
    if question.figure is None:
        return question.answer
    known = figures[question.figure]
    if known.value is None:
        return None
    if question.kind == "number":
        return convert(float(known.value), known.unit, question.unit)
    return (str(known.value),) if known.value in question.choices else None


def grade(question: Question, answer: float | tuple[str, ...], figures: Figures) -> Grade:
    """Grade a checked answer against the learner's own figures."""
    right = right_answer(question, figures)
    if right is None:
        return Grade(0.0, "open")
    if isinstance(answer, tuple) or isinstance(right, tuple):
        assert isinstance(answer, tuple) and isinstance(right, tuple), "check_answer gives what the question asks"
        return _GRADE[question.kind](right, answer)
    return _grade_number(question, answer, right, figures)


def _grade_number(question: Question, answer: float, right: float, figures: Figures) -> Grade:
    off = abs(answer - right)
    allowed = question.tolerance * abs(right) if question.absolute is None else question.absolute
    # Whole numbers are exact to the unit at least; 1e-9: what a conversion rounds.
    if off <= allowed + 1e-9 * abs(right):
        return Grade(1.0, "right")
    named = {name: _in_unit(question, figures, figure) for name, figure in question.mistakes.items()}
    mistake = mistake_behind(answer, right, question.unit, named, question.tolerance)
    if mistake is not None:
        return Grade(0.0, "wrong", mistake)
    return Grade(CLOSE_CREDIT, "close") if off <= CLOSE_BY * allowed else Grade(0.0, "wrong")


def _in_unit(question: Question, figures: Figures, name: str) -> float | None:
    known = figures[name]
    return None if known.value is None else convert(float(known.value), known.unit, question.unit)


def _grade_choice(right: Sequence[str], chosen: tuple[str, ...]) -> Grade:
    return Grade(1.0, "right") if chosen[0] in right else Grade(0.0, "wrong", chosen=chosen)


def _grade_many(right: Sequence[str], chosen: tuple[str, ...]) -> Grade:
    """Each right one counts its share, each wrong one takes a share away."""
    wrong = tuple(one for one in chosen if one not in right)
    share = max(0.0, (len(chosen) - 2 * len(wrong)) / len(right))
    if share == 1.0 and not wrong:
        return Grade(1.0, "right")
    return Grade(share, "partly" if share else "wrong", chosen=wrong)


def _grade_order(right: Sequence[str], chosen: tuple[str, ...]) -> Grade:
    """Pairs in the right order, as a share of what guessing doesn't give: half of them right is nothing."""
    place = {one: at for at, one in enumerate(right)}
    pairs = [place[one] < place[other] for one, other in combinations(chosen, 2)]
    share = max(0.0, 2 * sum(pairs) / len(pairs) - 1)
    if all(pairs):
        return Grade(1.0, "right")
    return Grade(share, "partly" if share else "wrong")


_GRADE = {"choice": _grade_choice, "many": _grade_many, "order": _grade_order}


@dataclass(frozen=True)
class Score:
    """points of those that can be had; answered: questions with an answer."""

    points: float
    of: float
    answered: int
    questions: int
    passed: bool

    @property
    def share(self) -> float | None:
        """Points of those that can be had."""
        return self.points / self.of if self.of else None


def score(lab: Lab, answers: Mapping[str, Sequence[Mapping[str, object]]]) -> Score:
    """The score of the answers kept so far: the best try of each question counts."""
    points = of = 0.0
    for question in lab.questions:
        given = answers.get(question.id, ())
        if any(one["verdict"] == "open" for one in given):
            continue
        of += question.points
        points += question.points * max((float(str(one["credit"])) for one in given), default=0.0)
    answered = sum(bool(answers.get(question.id)) for question in lab.questions)
    passed = bool(of) and points / of >= lab.pass_mark - 1e-9
    return Score(points, of, answered, len(lab.questions), passed)
