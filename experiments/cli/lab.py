"""`trilemma lab`: labs step by step, each step a command of its own, or all of them in a terminal with `lab start`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import Json
from experiments.cli.output import CANCELLED, DONE, note, one_line, print_json
from ledger.errors import CannotRunError, InputError

if TYPE_CHECKING:
    from experiments.labs import LabSession
    from experiments.labs.lab import Question

Lang = Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of the labs.")]
Learner = Annotated[str, typer.Option("--learner", metavar="NAME", help="Whose progress; one learner needs none.")]
LabId = Annotated[str, typer.Argument(metavar="ID", help="A lab, as `trilemma lab` lists them.")]
WITH_DASH = {"ignore_unknown_options": True}  # an answer may be a negative number

app = typer.Typer(help="Labs: predict, measure here, understand, be graded.", invoke_without_command=True)


@app.callback()
def labs(context: typer.Context, lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> None:
    """List the labs with your progress."""
    if context.invoked_subcommand is None:
        list_labs(lang, learner, as_json)


@app.command("list")
def list_labs(lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> None:
    """List the labs with your progress."""
    from experiments.labs import load_labs
    from experiments.labs.view import row_json

    rows = [row_json(_session(lab.id, learner), lang) for lab in load_labs()]
    if as_json:
        print_json({"labs": rows})
        return
    from experiments.cli.tables import console, plain_table
    from experiments.labs.words import say

    table = plain_table("id", "", "", "", "")
    for column in table.columns[1:]:
        column.justify = "left"
    for row in rows:
        percent = (
            "" if row["score"]["share"] is None or row["state"] == "new" else f"{100 * row['score']['share']:.0f} %"
        )
        minutes = say(lang, "minutes", minutes=row["minutes"])
        table.add_row(row["id"], say(lang, f"state.{row['state']}"), percent, minutes, row["title"])
    console().print(table)


@app.command("show")
def show(lab_id: LabId, lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> None:
    """Show a lab as far as you have come: before the prediction no result, before the result no question."""
    from experiments.labs.view import lab_json, lab_text

    session = _collected(lab_id, learner)
    if as_json:
        print_json(lab_json(session, lang))
    else:
        print(lab_text(session, lang))


@app.command("predict", context_settings=WITH_DASH)
def predict(
    lab_id: LabId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help='What you expect: "2.5 x", "30 ms", or a choice.')],
    lang: Lang = "en",
    learner: Learner = "me",
    as_json: Json = False,
) -> None:
    """Say what you expect, before anything is measured."""
    session = _session(lab_id, learner)
    session.texts(lang)
    session.predict(value)
    _tell(session, lang, as_json, _kept_prediction(session, lang))


@app.command("run")
def run(lab_id: LabId, lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> int:
    """Run the lab's experiment on this machine."""
    session = _session(lab_id, learner)
    session.texts(lang)
    state = _run(session)
    if not as_json:
        print(_measured(session, lang) if session.kept["figures"] is not None else "")
    _tell(session, lang, as_json, "")
    return CANCELLED if state == "cancelled" else DONE


@app.command("answer", context_settings=WITH_DASH)
def answer(
    lab_id: LabId,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question's id.")],
    value: Annotated[str, typer.Argument(metavar="ANSWER", help='"17.2 GB", a letter, or letters with commas.')],
    lang: Lang = "en",
    learner: Learner = "me",
    as_json: Json = False,
) -> None:
    """Answer a question of a lab and see whether it is right, and if not, which mistake was made."""
    session = _collected(lab_id, learner)
    session.texts(lang)
    session.answer(question, value)
    asked = session.lab.question(question)
    assert asked is not None, "an unknown question is refused above"
    _tell(session, lang, as_json, _graded(session, asked, lang))


@app.command("score")
def score(lab_id: LabId, lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> None:
    """Your score in a lab."""
    session = _collected(lab_id, learner)
    session.texts(lang)
    _tell(session, lang, as_json, _scored(session, lang), with_next=False)


@app.command("report")
def report(
    lab_id: LabId,
    form: Annotated[
        str | None, typer.Option("--format", metavar="html|md", help="A page or Markdown; by default FILE's ending.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write it; by default trilemma-lab-ID.FORMAT.")
    ] = None,
    lang: Lang = "en",
    learner: Learner = "me",
) -> None:
    """Write what you predicted, what came out, your answers and your score as a file."""
    from experiments.cli.output import write_file
    from experiments.labs.report import lab_report

    chosen = form or (out.suffix.removeprefix(".") if out else "html")
    made = lab_report(_collected(lab_id, learner), chosen, lang)
    path = out or Path(f"trilemma-lab-{lab_id}.{chosen}")
    write_file(path, made)
    note(f"written: {path}")


@app.command("reset")
def reset(lab_id: LabId, lang: Lang = "en", learner: Learner = "me", as_json: Json = False) -> None:
    """Begin a lab anew; its runs stay in the store."""
    from experiments.labs import Progress, get_lab
    from experiments.labs.words import say

    words = say(lang, "reset_done", id=lab_id)
    Progress(learner).reset(get_lab(lab_id).id)
    if as_json:
        print_json({"id": lab_id, "state": "new"})
    else:
        print(words)


@app.command("start")
def start(lab_id: LabId, lang: Lang = "en", learner: Learner = "me") -> int:
    """Go through a lab in this terminal, from where you left it."""
    from experiments.labs.view import before_text
    from experiments.labs.words import say

    if not sys.stdin.isatty():
        raise CannotRunError("lab start needs a terminal; without one: lab show, predict, run, answer, score")
    session = _collected(lab_id, learner)
    print(before_text(session, lang))
    if session.kept["prediction"] is None:
        _until_accepted(_prompt("predict", lang), session.predict)
        print(_kept_prediction(session, lang))
    if session.kept["figures"] is None:
        input(f"\n{say(lang, 'prompt.run')} ")
        if _run(session) == "cancelled":
            return CANCELLED
    print(_measured(session, lang))
    for question in session.lab.questions:
        _ask(session, question, lang)
    print(f"\n{_scored(session, lang)}")
    return DONE


# -- parts -----------------------------------------------------------------------------------------------------------


def _session(lab_id: str, learner: str) -> LabSession:
    from experiments.labs import LabSession, Progress, get_lab
    from experiments.store import Store

    return LabSession(get_lab(lab_id), Progress(learner), Store())


def _collected(lab_id: str, learner: str) -> LabSession:
    """The session, with the figures of a run that has ended since."""
    session = _session(lab_id, learner)
    session.collect()
    return session


def _run(session: LabSession) -> str:
    """Run the experiment to its end and take its figures; the state in which it ended."""
    from experiments.cli.progress import follow, result_of

    run_id = session.start()
    if run_id is None:
        return "done"
    ended = follow(run_id, session.store, [])
    if ended.state == "done":
        result_of(ended)
        session.collect()
    elif ended.state == "failed":
        result_of(ended)
        raise CannotRunError(ended.error or f"run {run_id} has no result")
    else:
        note(f"cancelled; trilemma lab run {session.lab.id} runs it again")
    return ended.state


def _ask(session: LabSession, question: Question, lang: str) -> None:
    """Ask until the question is settled; an empty line leaves it for later."""
    from experiments.labs.view import question_text

    if session.is_settled(question):
        return
    print(f"\n{question_text(session, question, lang)}")
    while not session.is_settled(question):
        if not _until_accepted(_prompt("answer", lang), lambda text: session.answer(question.id, text), may_skip=True):
            return
        print(_graded(session, question, lang))


def _prompt(step: str, lang: str) -> str:
    from experiments.labs.words import say

    return say(lang, "named", name=say(lang, f"prompt.{step}"), value="")


def _until_accepted(prompt: str, accept: Any, *, may_skip: bool = False) -> bool:
    while True:
        text = input(prompt).strip()
        if not text and may_skip:
            return False
        try:
            accept(text)
            return True
        except InputError as error:
            note(one_line(str(error)))


def _kept_prediction(session: LabSession, lang: str) -> str:
    from experiments.labs.words import say

    return say(lang, "kept_prediction", prediction=session.predicted(lang))


def _measured(session: LabSession, lang: str) -> str:
    from experiments.labs.view import measured_text

    return measured_text(session, lang)


def _graded(session: LabSession, question: Question, lang: str) -> str:
    from experiments.labs.view import graded_text

    return graded_text(session, question, lang)


def _scored(session: LabSession, lang: str) -> str:
    from experiments.labs.view import score_text

    return score_text(session, lang)


def _tell(session: LabSession, lang: str, as_json: bool, text: str, *, with_next: bool = True) -> None:
    """The text and the next step, or all of it as JSON."""
    from experiments.labs.view import lab_json, next_text

    if as_json:
        print_json(lab_json(session, lang))
        return
    print("\n".join(filter(None, [text, next_text(session, lang) if with_next else ""])))
