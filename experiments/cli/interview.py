"""`trilemma interview`: practice questions, a timed mock interview, review of what was missed, score sheet."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import EndpointModel, Json, KeyEnv, Timeout
from experiments.cli.output import note, print_json
from ledger.counted import counted
from ledger.errors import CannotRunError, InputError

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.interview.answering import Result
    from experiments.interview.by_model import Judge
    from experiments.interview.items import Item
    from experiments.interview.progress import Mode, Progress
    from experiments.interview.sheet import Sheet
    from experiments.interview.words import Lang

TOPIC = "Only this topic, by its name in either language; list names them."
Language = Annotated[str, typer.Option("--lang", metavar="en|zh", help="Language of questions and feedback.")]
Topic = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help=TOPIC),
]
SeedText = Annotated[str | None, typer.Option("--seed", metavar="N", help="The same seed asks the same question.")]
Reference = Annotated[str | None, typer.Option("--question", metavar="NAME[:SEED]", help="This question.")]
Answer = Annotated[str | None, typer.Option("--answer", metavar="TEXT", help="Answer without being asked.")]
JudgeUrl = Annotated[
    str | None, typer.Option("--judge", metavar="URL", help="Have open answers judged by a model of this endpoint too.")
]

app = typer.Typer(help="Practise interview questions, with keys that are computed and mistakes told by name.")


@app.command("list")
def list_questions(topic: Topic = None, lang: Language = "en", as_json: Json = False) -> None:
    """List every question: the bank's, and the kinds of numeric ones that have fresh parameters for every seed."""
    from experiments.interview.items import form_of, names, title_of, topic_of
    from experiments.interview.words import checked_lang, form_name, topic_name

    language = checked_lang(lang)
    rows = [
        {"name": name, "topic": topic_of(name), "form": form_of(name), "title": title_of(name, language)}
        for name in names(topic)
    ]
    if as_json:
        print_json({"questions": rows})
        return
    from experiments.cli.tables import console

    table = _table(language, "name", "topic", "form", "question")
    table.columns[-1].justify = "left"
    for row in rows:
        topic_said, form = topic_name(language, row["topic"]), form_name(language, row["form"])
        table.add_row(row["name"], topic_said, form, row["title"])
    console().print(table)


@app.command("ask")
def ask(
    reference: Annotated[str | None, typer.Argument(metavar="[NAME[:SEED]]", help="This question.")] = None,
    topic: Topic = None,
    seed: SeedText = None,
    question: Reference = None,
    answer: Answer = None,
    judge: JudgeUrl = None,
    endpoint_model: EndpointModel = None,
    key_env: KeyEnv = None,
    timeout: Timeout = "60",
    lang: Language = "en",
    as_json: Json = False,
) -> None:
    """Ask one question and grade the answer; without a terminal and without --answer, print the question."""
    from experiments.interview.items import checked_seed, fresh_seed, item, pick
    from experiments.interview.progress import Progress
    from experiments.interview.words import checked_lang

    language = checked_lang(lang)
    if reference is not None and question is not None:
        raise InputError("--question", question, f"not beside {reference}")
    question = question or reference
    judge_with = _judge(judge, endpoint_model, key_env, timeout)
    if question is not None:
        if topic is not None or (seed is not None and ":" in question):
            raise InputError("--question", question, "without --topic, and with one seed: NAME:SEED or --seed")
        chosen = item(question if seed is None else f"{question}:{checked_seed(seed)}")
    else:
        chosen = pick(fresh_seed() if seed is None else checked_seed(seed), topic)
    _one(chosen, answer, "ask", Progress(), language, judge_with, as_json)


@app.command("review")
def review(
    answer: Answer = None,
    question: Reference = None,
    seed: SeedText = None,
    lang: Language = "en",
    as_json: Json = False,
) -> None:
    """Ask what was missed and is due; numeric questions come back with fresh parameters."""
    from experiments.interview.items import checked_seed, fresh_seed, item
    from experiments.interview.progress import Progress
    from experiments.interview.words import checked_lang, say

    language, progress = checked_lang(lang), Progress()
    found, waiting = progress.cards(), progress.due()
    if question is not None:
        asked = question if seed is None or ":" in question else f"{question}:{checked_seed(seed)}"
        _one(item(asked), answer, "review", progress, language, None, as_json)
        return
    if not waiting:
        later = min((card.due for card in found.values()), default=None)
        text = say(language, "due_none") if later is None else say(language, "due_next", when=f"{later:%Y-%m-%d %H:%M}")
        if as_json:
            print_json({"due": 0, "next": None if later is None else later.isoformat(), "message": text})
        else:
            print(text)
        return
    number_of = fresh_seed() if seed is None else checked_seed(seed)
    _one(item(f"{waiting[0].name}:{number_of}"), answer, "review", progress, language, None, as_json, due=len(waiting))


@app.command("mock")
def mock(
    questions: Annotated[str, typer.Option("--questions", metavar="N", help="How many questions.")] = "10",
    minutes: Annotated[str, typer.Option("--minutes", metavar="M", help="Time for all of them.")] = "30",
    topic: Topic = None,
    seed: SeedText = None,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", metavar="FILE", help="A JSON list of answers in order, null for none, or an object."),
    ] = None,
    show: Annotated[bool, typer.Option("--plan", help="Print the questions and end; nothing is stored.")] = False,
    lang: Language = "en",
    as_json: Json = False,
) -> None:
    """A timed mock interview: topics in turn, no feedback before the end, then the score sheet."""
    from experiments.interview.answering import answer
    from experiments.interview.items import checked_seed, fresh_seed, item
    from experiments.interview.mock import Mock, new_id, plan
    from experiments.interview.mock import minutes as limit
    from experiments.interview.progress import Progress
    from experiments.interview.words import checked_lang

    language = checked_lang(lang)
    start = fresh_seed() if seed is None else checked_seed(seed)
    limit_s = limit(number("--minutes", minutes))
    refs = plan(start, whole("--questions", questions) or 0, topic)
    if show:
        _print_plan(start, [item(ref) for ref in refs], language, as_json)
        return
    given = None if answers is None else _answers_of(answers, refs)
    if given is None and not _can_ask(as_json):
        raise CannotRunError("interview: no terminal to ask on; --answers FILE answers, --plan prints the questions")
    for ref, text in zip(refs, given or (), strict=False):
        if text is not None:
            answer(item(ref), text)  # one that can't be read is refused before the interview begins
    progress = Progress()
    made = Mock(new_id(), progress.now(), limit_s, refs)
    progress.start(made)
    results = _sit(made, progress, language, given)
    progress.end(made)
    _finish(made, results, progress, language, as_json)


@app.command("score")
def score(lang: Language = "en", as_json: Json = False) -> None:
    """The score sheet by topic, and what is due."""
    from experiments.interview.progress import Progress
    from experiments.interview.sheet import score as sheet_of
    from experiments.interview.words import checked_lang, say

    language, progress = checked_lang(lang), Progress()
    found, waiting = progress.cards(), progress.due()
    made = sheet_of(progress.answers())
    boxes = [{"name": card.name, "box": card.box, "due": card.due.isoformat()} for card in found.values()]
    if as_json:
        print_json({**made.to_json(), "boxes": boxes, "due": [card.name for card in waiting]})
    else:
        _print_sheet(made, language)
        print(say(language, "due_count", due=len(waiting), missed=len(found)))


@app.command("reset")
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Without being asked.")] = False, as_json: Json = False
) -> None:
    """Forget all answers, mock interviews and due dates."""
    from experiments.interview.progress import Progress

    if not yes:
        if not _can_ask(as_json):
            raise InputError("--yes", "missing", "--yes where there is no terminal to ask on")
        typer.confirm("Forget all answers of the interview practice?", abort=True)
    count = Progress().reset()
    if as_json:
        print_json({"forgotten": count})
    else:
        print(f"{counted(count, 'answer')} forgotten")


def _one(
    chosen: Item,
    answer: str | None,
    mode: Mode,
    progress: Progress,
    lang: Lang,
    judge: Judge | None,
    as_json: bool,
    due: int | None = None,
) -> None:
    """Ask, grade, store and tell one question; only the question where nobody can answer."""
    shown = _question_json(chosen, lang) | ({} if due is None else {"due": due})
    if answer is None and not _can_ask(as_json):
        if as_json:
            print_json(shown)
        else:
            _print_question(chosen, lang)
        return
    if answer is None:
        _print_question(chosen, lang)
        answer = typer.prompt("", prompt_suffix="> ")
    result = _graded(chosen, answer, judge, lang)
    progress.add(result, mode)
    if as_json:
        print_json({**shown, **result.to_json(lang)})
    else:
        _print_result(result, lang)


def _graded(chosen: Item, text: str, judge: Judge | None, lang: Lang) -> Result:
    from experiments.interview.answering import answer
    from experiments.interview.by_model import judged

    result = answer(chosen, text)
    return result if judge is None or result.grade is None else judged(result, judge, lang)


def _sit(made: Any, progress: Progress, lang: Lang, given: list[str | None] | None) -> list[Result]:
    """Every question of a mock interview until its time is over; answers that can't be read are asked again."""
    from experiments.interview.answering import answer, unanswered
    from experiments.interview.items import item
    from experiments.interview.words import say

    results = []
    for place, ref in enumerate(made.refs):
        chosen = item(ref)
        text = None if given is None else given[place]
        if given is None and not made.is_over(progress.now()):
            left = f"{made.left_s(progress.now()) / 60:.1f}"
            note(say(lang, "mock_progress", place=place + 1, count=len(made.refs), left=left))
            _print_question(chosen, lang)
        while True:
            if given is None and not made.is_over(progress.now()):
                text = typer.prompt("", prompt_suffix="> ", default="", show_default=False) or None
            if text is None or made.is_over(progress.now()):
                results.append(unanswered(chosen))
                break
            try:
                result = answer(chosen, text)
            except InputError as error:
                if given is not None:
                    raise
                note(str(error))
                continue
            progress.add(result, "mock", made.id, place)
            results.append(result)
            break
    return results


def _finish(made: Any, results: Sequence[Result], progress: Progress, lang: Lang, as_json: bool) -> None:
    from experiments.interview.sheet import mock_score

    found = mock_score(made, progress.answers(made.id))
    if as_json:
        print_json({"mock": made.id, **found.to_json(), "answers": [result.to_json(lang) for result in results]})
        return
    for result in results:
        _print_question(result.item, lang)
        _print_result(result, lang)
        print()
    _print_sheet(found, lang)


def _answers_of(path: Path, refs: Sequence[str]) -> list[str | None]:
    """Answers in order from a JSON list, or by reference or name from an object."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError("--answers", str(path), f"a JSON file ({str(error)[:80]})") from None
    if isinstance(found, dict):
        found = [found.get(ref, found.get(ref.partition(":")[0])) for ref in refs]
    if not isinstance(found, list) or len(found) != len(refs):
        raise InputError("--answers", str(path), f"a list of {len(refs)} answers, or an object by question")
    if not all(one is None or isinstance(one, str | int | float) for one in found):
        raise InputError("--answers", str(path), "answers as texts, numbers or null")
    return [None if one is None else str(one) for one in found]


def _judge(address: str | None, model: str | None, key_env: str | None, timeout: str) -> Judge | None:
    from experiments.interview.by_model import judge_of

    if address is None:
        if model is not None or key_env is not None:
            raise InputError("--judge", "missing", "--judge URL with --endpoint-model or --key-env")
        return None
    return judge_of(address, model, key_env, timeout)


def _question_json(chosen: Item, lang: Lang) -> dict[str, Any]:
    return {
        "question": chosen.ref,
        "topic": chosen.topic,
        "form": chosen.form,
        "ask": chosen.ask(lang),
        "options": chosen.options(lang),
        "unit": chosen.numeric.kind.unit if chosen.numeric else None,
    }


def _print_plan(seed: int, asked: Sequence[Item], lang: Lang, as_json: bool) -> None:
    from experiments.interview.words import say

    if as_json:
        print_json({"seed": seed, "questions": [_question_json(one, lang) for one in asked]})
        return
    print(say(lang, "mock_plan", seed=str(seed)))
    for place, one in enumerate(asked, 1):
        print(f"\n{place}. ", end="")
        _print_question(one, lang)


def _print_question(chosen: Item, lang: Lang) -> None:
    from experiments.interview.words import topic_name

    print(f"[{topic_name(lang, chosen.topic)}] {chosen.ref}")
    print(chosen.ask(lang))
    for letter, text in chosen.options(lang).items():
        print(f"  {letter}. {text}")
    if chosen.hint(lang):
        print(chosen.hint(lang))


def _print_result(result: Result, lang: Lang) -> None:
    from experiments.interview.answering import feedback
    from experiments.interview.words import say

    told = feedback(result, lang)
    print(told.verdict)
    marks = {"found": "+", "missing": "-", "denied": "-", "wrong": "!"}
    for state, text in told.points:
        print(f"  {marks[state]} {text}")
    for line in told.lines:
        print(line)
    if told.solution:
        print(say(lang, "model_answer_is" if result.item.form == "open" else "solution_is", text=told.solution))


def _print_sheet(found: Sheet, lang: Lang) -> None:
    from experiments.cli.tables import console
    from experiments.interview.items import title_of
    from experiments.interview.words import column_name, say, topic_name

    table = _table(lang, "topic", "asked", "answered", "passed", "credit")
    for row in (*found.rows, found.total):
        name = column_name(lang, "total") if row.topic == "total" else topic_name(lang, row.topic)
        credit = "–" if row.credit is None else f"{100 * row.credit:.0f} %"
        table.add_row(name, str(row.asked), str(row.answered), str(row.passed), credit)
    console().print(table)
    for name in found.missed:
        print(say(lang, "missed", name=name, title=title_of(name, lang)))


def _table(lang: Lang, *columns: str) -> Table:
    from experiments.cli.tables import plain_table
    from experiments.interview.words import column_name

    return plain_table(*(column_name(lang, name) for name in columns))


def _can_ask(as_json: bool) -> bool:
    return not as_json and sys.stdin.isatty()
