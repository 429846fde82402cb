"""A lab as JSON and as text, as far as the learner has come: nothing shows a result before the prediction.

Used by the command line; the page draws from the session itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.labs.grade import LETTERS, TRIES, Score, shown_choices
from experiments.labs.lab import Question
from experiments.labs.quantities import unit_name
from experiments.labs.session import LabSession
from experiments.labs.words import say


def row_json(session: LabSession, lang: str) -> dict[str, Any]:
    """A lab in the list: id, title, summary, sections, claims, minutes, state, score."""
    lab, texts = session.lab, session.texts(lang)
    return {
        "id": lab.id,
        "title": texts.title,
        "summary": texts.summary,
        "sections": list(lab.sections),
        "claims": list(lab.claims),
        "minutes": lab.minutes,
        "state": session.state,
        "score": _score_json(session.score(), lab.pass_mark),
    }


def lab_json(session: LabSession, lang: str) -> dict[str, Any]:
    """All that may be shown at this step; keys of later steps are null."""
    lab, texts = session.lab, session.texts(lang)
    measured = session.kept["figures"] is not None
    return {
        **row_json(session, lang),
        "learner": session.progress.learner,
        "goal": session.text(texts.goal, lang),
        "theory": session.text(texts.theory, lang),
        "prediction": {
            "ask": session.asking(texts.prediction["ask"], lang),
            "unit": lab.prediction.unit,
            "choices": dict(texts.prediction.get("choices", {})),
            "given": session.kept["prediction"],
        },
        "experiment": {"kind": lab.experiment.kind, "what": session.text(texts.experiment, lang)},
        "run_id": session.kept["run_id"],
        "results": _results_json(session, lang) if measured else None,
        "questions": [_question_json(session, one, lang) for one in lab.questions] if measured else None,
        "reading": list(lab.reading),
    }


def _results_json(session: LabSession, lang: str) -> dict[str, Any]:
    names, figures, compared = session.texts(lang).figures, session.worded(lang), session.compared(lang)
    figures |= {name: replace(figures[name], value=None) for name in session.withheld()}
    return {
        "predicted": compared.predicted,
        "outcome": compared.outcome,
        "ratio": compared.ratio,
        "same": compared.same,
        "provenance": compared.provenance,
        "figures": [{"name": name, "what": names[name], **figures[name].to_json()} for name in session.shown()],
        "why": session.why(lang),
    }


def _question_json(session: LabSession, question: Question, lang: str) -> dict[str, Any]:
    words = session.texts(lang).questions[question.id]
    settled = session.is_settled(question)
    return {
        "id": question.id,
        "kind": question.kind,
        "ask": session.asking(words["ask"], lang),
        "unit": question.unit,
        "choices": {one: session.asking(words["choices"][one], lang) for one in shown_choices(session.lab, question)},
        "points": question.points,
        "attempts": [
            {**one, "told": session.verdict(question, one, lang)} for one in session.attempts(question)
        ],
        "tries_left": 0 if settled else len(TRIES) - len(session.attempts(question)),
        "solution": session.solution(question, lang) if settled else None,
    }  # fmt: skip


def _score_json(found: Score, mark: float) -> dict[str, Any]:
    return {
        "points": found.points,
        "of": found.of,
        "share": found.share,
        "answered": found.answered,
        "questions": found.questions,
        "passed": found.passed,
        "pass_mark": mark,
    }


# -- text ------------------------------------------------------------------------------------------------------------


def lab_text(session: LabSession, lang: str) -> str:
    """The lab as far as the learner has come."""
    parts = [before_text(session, lang)]
    if session.kept["prediction"] is not None:
        parts.append(say(lang, "kept_prediction", prediction=session.predicted(lang)))
    if session.kept["figures"] is not None:
        parts.append(measured_text(session, lang))
        parts.append(f"## {say(lang, 'step.questions')}")
        for question in session.lab.questions:
            parts.append(question_text(session, question, lang))
            if session.attempts(question):
                parts.append(graded_text(session, question, lang))
        parts.append(score_text(session, lang))
    parts.append(next_text(session, lang))
    return "\n\n".join(parts)


def before_text(session: LabSession, lang: str) -> str:
    """What may be read before the prediction."""
    lab, texts = session.lab, session.texts(lang)
    asked = session.asking(texts.prediction["ask"], lang)
    unit = in_unit(lab.prediction.unit, lang)
    sections: list[tuple[str, str]] = [
        ("goal", texts.goal),
        ("theory", texts.theory),
        ("run", texts.experiment),
        ("reading", "\n".join(f"- {title}" for title in lab.reading)),
        ("predict", "\n".join([f"{asked}{unit}", *_choices(texts.prediction)])),
    ]
    body = [f"## {say(lang, f'step.{name}')}\n\n{session.text(text, lang)}" for name, text in sections]
    return "\n\n".join([f"# {texts.title}", texts.summary, *body])


def in_unit(unit: str, lang: str) -> str:
    """The unit that an answer is asked in, to put behind the question; nothing for a plain number."""
    return say(lang, "in_unit", unit=unit_name(unit, lang)) if unit else ""


def _choices(words: Any) -> list[str]:
    return [f"  {LETTERS[place]}) {text}" for place, text in enumerate(words.get("choices", {}).values())]


def measured_text(session: LabSession, lang: str) -> str:
    """The prediction beside what came out, the figures with their labels, and why."""
    names, figures = session.texts(lang).figures, session.worded(lang)
    rows = [
        f"- {say(lang, 'named', name=names[name], value=figures[name].say(lang))}"
        f" [{say(lang, figures[name].provenance)}]"
        for name in session.shown()
    ]
    return "\n".join(
        [
            f"## {say(lang, 'step.measured')}\n",
            f"{compared_text(session, lang)}\n",
            *rows,
            f"\n## {say(lang, 'step.why')}\n",
            session.why(lang),
        ]
    )  # fmt: skip


def compared_text(session: LabSession, lang: str) -> str:
    """The predicted figure: what was expected, what came out, and their ratio."""
    name, compared = session.texts(lang).figures[session.lab.prediction.figure], session.compared(lang)
    told = say(
        lang, "compared", name=name, predicted=say(lang, "predicted"), prediction=compared.predicted,
        label=say(lang, compared.provenance), outcome=compared.outcome,
    )  # fmt: skip
    if compared.ratio is None:
        return told
    return told + say(lang, "in_brackets", text=say(lang, "over_predicted", ratio=f"{compared.ratio:.3g}"))


def question_text(session: LabSession, question: Question, lang: str) -> str:
    """A question with its choices by letter."""
    words = session.texts(lang).questions[question.id]
    unit = in_unit(question.unit, lang)
    hint = {"many": say(lang, "hint.many"), "order": say(lang, "hint.order")}.get(question.kind, "")
    shown = shown_choices(session.lab, question)
    choices = [f"  {LETTERS[place]}) {session.asking(words['choices'][one], lang)}" for place, one in enumerate(shown)]
    head = f"[{question.id}] {session.asking(words['ask'], lang)}{unit}{hint}"
    return "\n".join([head, *choices])


def graded_text(session: LabSession, question: Question, lang: str) -> str:
    """What the last answer was told, and the solution once there is nothing more to answer."""
    attempts = session.attempts(question)
    told = session.verdict(question, attempts[-1], lang)
    if session.is_settled(question):
        return f"{told} {session.solution(question, lang)}"
    return f"{told} {say(lang, 'tries_left', left=len(TRIES) - len(attempts), tries=len(TRIES))}"


def score_text(session: LabSession, lang: str) -> str:
    """Points, share and whether that passes."""
    found, mark = session.score(), f"{100 * session.lab.pass_mark:.0f}"
    points = say(
        lang, "score", points=f"{found.points:g}", of=f"{found.of:g}", percent=f"{100 * (found.share or 0):.0f}"
    )
    return f"{points} {say(lang, 'passed' if found.passed else 'not_passed', mark=mark)}"


def next_text(session: LabSession, lang: str) -> str:
    """Which command comes next."""
    lab_id, question = session.lab.id, session.next_question()
    if session.kept["prediction"] is None:
        return say(lang, "next.predict", id=lab_id)
    if session.kept["figures"] is None:
        return say(lang, "next.run", id=lab_id)
    if question is None:
        return say(lang, "next.done", id=lab_id)
    return say(lang, "next.answer", id=lab_id, question=question.id)
