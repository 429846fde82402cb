"""A lab as a report: what was predicted and what came out, every answer with what it was told, and the score.

Drawn by the renderers of a run's report, so that it looks like one. The run itself has its own report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from experiments.labs.lab import Question
from experiments.labs.session import LabSession
from experiments.labs.view import compared_text, in_unit, lab_json, score_text
from experiments.labs.words import say
from experiments.report import parts
from experiments.report.document import Block, Cell, Code, Document, Heading, Note, labels_of, section, table
from experiments.report.markdown import markdown
from experiments.report.page import html_page
from experiments.report.words import Words
from ledger.errors import InputError

FORMATS: dict[str, Callable[[Document], str]] = {"html": html_page, "md": markdown}
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARKS = re.compile(r"\*\*|`")  # what labs' texts use besides fences and lists


def lab_report(session: LabSession, form: str, lang: str) -> bytes:
    """The report as a file of one of FORMATS; InputError for another, or before the experiment is done."""
    if form not in FORMATS:
        raise InputError("--format", form, ", ".join(FORMATS))
    return FORMATS[form](lab_document(session, lang)).encode()


def lab_document(session: LabSession, lang: str) -> Document:
    """The report as plain data; InputError before the experiment is done."""
    lab, texts, words = session.lab, session.texts(lang), Words(lang)
    if session.kept["figures"] is None:
        raise InputError("lab", lab.id, f"one whose experiment is done: trilemma lab run {lab.id}")
    compared, passed, run_id = session.compared(lang), session.score().passed, session.kept["run_id"]
    made = Document(
        lang=lang,
        title=texts.title,
        subtitle=" · ".join(filter(None, [lab.id, session.progress.learner, run_id])),
        question=_plain(session.asking(texts.prediction["ask"], lang)) + in_unit(lab.prediction.unit, lang),
        answer=compared_text(session, lang),
        label=compared.provenance,
        mark=(say(lang, "state.passed"), "good") if passed else None,
        more=(score_text(session, lang),),
        cautions=(),
        caveats=(),
        sections=(
            section(say(lang, "step.goal"), None, *_paragraphs(session.text(texts.goal, lang))),
            section(say(lang, "step.measured"), None, _figures(session, lang)),
            section(say(lang, "step.why"), None, *_paragraphs(session.why(lang))),
            section(
                say(lang, "step.questions"),
                None,
                *(one for asked in lab.questions for one in _asked(session, asked, lang)),
            ),
        ),
        definitions={},
        command=f"trilemma lab start {lab.id}" if run_id is None else f"trilemma report {run_id}",
        data={"lab": lab_json(session, lang)},
    )
    ending = (parts.sources(labels_of(made), words), parts.reproduce(made.command, words))
    return replace(made, sections=(*made.sections, *(part for part in ending if part is not None)))


def _figures(session: LabSession, lang: str) -> Block:
    names, figures = session.texts(lang).figures, session.worded(lang)
    rows: list[list[Any]] = []
    for name in session.shown():
        known = figures[name]
        rows.append([names[name], Cell(known.say(lang), known.value, known.provenance)])
    return table((say(lang, "figure"), say(lang, "value")), rows, numeric=(1,))


def _asked(session: LabSession, question: Question, lang: str) -> Iterator[Block]:
    """A question, each answer with what it was told, and the solution once nothing more can be answered."""
    yield Heading(_plain(session.asking(session.texts(lang).questions[question.id]["ask"], lang)))
    given = session.attempts(question)
    if not given:
        yield Note(say(lang, "no_answer"), "muted")
    else:
        yield table(None, [[one["text"], _plain(session.verdict(question, one, lang))] for one in given])
    if session.is_settled(question):
        yield Note(_plain(session.solution(question, lang)))


def _paragraphs(text: str) -> Iterator[Block]:
    """A lab's Markdown as notes, its fenced blocks as code."""
    for place, piece in enumerate(FENCED.split(text)):
        if place % 2:
            yield Code(piece.rstrip("\n"))
        else:
            yield from (Note(_plain(part)) for part in piece.split("\n\n") if part.strip())


def _plain(text: str) -> str:
    return " ".join(MARKS.sub("", text).split())
