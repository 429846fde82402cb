"""Options that verbs share are read from one place, each with the default that its verb gives it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from inspect import signature
from typing import Annotated

import pytest
import typer

from experiments.cli import factorial, jitter, ladder, levers, measure, options, simulate, sweep
from experiments.cli.groups import grouped


@dataclass(frozen=True)
class _Pair:
    left: Annotated[str, typer.Option("--left")] = "l"
    right: Annotated[str | None, typer.Option("--right")] = None


def test_a_group_is_an_option_for_each_field_and_arrives_as_one_value() -> None:
    @grouped
    def verb(first: int, pair: _Pair = _Pair(left="other"), last: str = "z") -> tuple[int, _Pair, str]:
        return first, pair, last

    taken = signature(verb).parameters
    assert list(taken) == ["first", "left", "right", "last"]
    assert (taken["left"].default, taken["right"].default) == ("other", None)
    assert verb(first=1, left="a", right="b", last="c") == (1, _Pair("a", "b"), "c")


@pytest.mark.parametrize(
    ("verb", "workload"),
    [
        (measure.bench, "mixed"),
        (measure.compare, "mixed"),
        (factorial.factorial, "mixed"),
        (sweep.sweep, "mixed"),
        (jitter.jitter, "long-prompts"),
        (levers.levers, "assistant"),
        (ladder.ladder, ""),
        (simulate.simulate, "mixed"),
    ],
)
def test_every_verb_that_runs_a_load_takes_all_of_its_options(verb: object, workload: str) -> None:
    taken = signature(verb).parameters  # type: ignore[arg-type]
    assert {field.name for field in fields(options.Load)} <= set(taken)
    assert taken["workload"].default == workload


@pytest.mark.parametrize("verb", ["sweep", "ladder"])
@pytest.mark.parametrize("given", [["--seed", "1"], ["--time-scale", "2"], ["--set", "threads=1"]])
def test_a_resumed_run_takes_no_other_option(verb: str, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from experiments.cli import run

    assert run([verb, "--resume", "00000000", *given]) == 2
    assert "no other option" in capsys.readouterr().err
