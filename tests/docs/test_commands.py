"""Every `trilemma` command that a document or a lab shows is one that the command line takes.

Nothing is run: the command line's own parser reads each command, and the registry the settings in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from core_engine.variables import parse_setting, parse_value
from experiments.cli.verbs import command_line
from experiments.workloads import WORKLOADS
from ledger.errors import InputError
from tests.docs.markdown import DOCUMENTS, ROOT, blocks, inline_code

COMMAND_LINE: Any = typer.main.get_command(command_line())
LABS = sorted((ROOT / "experiments" / "labs" / "content").rglob("*.toml"))
SETTINGS = ("--set", "--canary-set")
PROGRAM = re.compile(r"^(?:[A-Z_]+=\S+ )?(?:\.venv/bin/)?trilemma(?= |$)")
INCOMPLETE = re.compile(r"^Missing |requires an argument")


def commands(path: Path) -> list[str]:
    """Every command of a document that names a verb: lines of fenced blocks, and inline code."""
    text = path.read_text("utf-8")
    return [*_of(line.strip() for block in blocks(text) for line in block.text.splitlines()), *_of(inline_code(text))]


def refusals(path: Path) -> dict[str, str]:
    """command -> why it is refused. In a sentence a verb or an option may be named without what it needs."""
    text = path.read_text("utf-8")
    found = {command: refusal(words_of(command)) for command in commands(path)}
    named = set(_of(inline_code(text)))
    return {c: why for c, why in found.items() if why and not (c in named and INCOMPLETE.search(why))}


def _of(lines: Iterable[str]) -> list[str]:
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [part for part in parts if PROGRAM.match(part) and words_of(part) and words_of(part)[0] != "VERB"]


def words_of(command: str) -> list[str]:
    """The words after the program's name: no comment, no output sent elsewhere, no brackets around what is optional."""
    plain = PROGRAM.sub("", command).replace(" ... ", " ").removesuffix(" ...").replace("[--", "--")
    plain = re.sub(r"(?<=\w)\](?= |$)", "", re.split(r"\s{2,}[^-\s]|\s&$| > ", plain)[0])
    return shlex.split(plain, comments=True)


def refusal(words: list[str]) -> str:
    """Why the command line would refuse these words; "" when it takes them. No verb is called."""
    command: Any = COMMAND_LINE
    names = list(words)
    while (verbs := verbs_of(command)) and names and not names[0].startswith("-"):
        if names[0] not in verbs:
            return f"there is no {names[0]}"
        command = verbs[names.pop(0)]
    try:
        context = command.make_context(" ".join(words[:1]), names)
    except Exception as error:  # typer's own copy of click's classes, or click's
        return str(getattr(error, "message", error))
    return "; ".join(wrong_values(command, context))


def verbs_of(command: Any) -> dict[str, Any]:
    """The verbs under a command by name; none under one that is called itself."""
    return dict(getattr(command, "commands", {}))


def wrong_values(command: Any, context: Any) -> Iterator[str]:
    """What the registry says against the settings and variables, and which workload is none."""
    for parameter in command.params:
        given = context.params.get(str(parameter.name))
        for value in [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []:
            if set(SETTINGS) & set(parameter.opts):
                yield from refused(lambda value=value: parse_setting(value))
            if "--vary" in parameter.opts and "=" in value:
                name, _, listed = value.partition("=")
                yield from refused(lambda name=name, listed=listed: [parse_value(name, v) for v in listed.split(",")])
            if "--workload" in parameter.opts and value and "." not in value and value not in WORKLOADS:
                yield f"there is no workload {value}"


def refused(parse: Callable[[], object]) -> Iterator[str]:
    """The error of a parser, if it has one."""
    try:
        parse()
    except InputError as error:
        yield str(error)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_a_document_is_accepted(path: Path) -> None:
    assert refusals(path) == {}


def test_every_command_that_a_lab_names_is_accepted() -> None:
    assert sum(len(commands(path)) for path in LABS) > 10
    assert {path.parent.name: found for path in LABS if (found := refusals(path))} == {}


def test_the_documents_show_every_verb() -> None:
    shown = {words_of(command)[0] for path in DOCUMENTS for command in commands(path)}
    assert set(verbs_of(COMMAND_LINE)) - shown == set()


@pytest.mark.parametrize(
    "command",
    [
        "nothing", "bench --worklod chat", "bench --set nope=1", "bench --set dtype=fp1", "bench --workload nothing",
        "compare --vary batching=fast,static", "simulate --replicas",
    ],
)  # fmt: skip
def test_a_wrong_command_is_seen(command: str) -> None:
    assert refusal(words_of(f"trilemma {command}"))
