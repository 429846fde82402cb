"""The ladder's benchmark: its cases are valid ladders, and what it judges by, on made-up results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ladder_workload
import pytest

from experiments.kinds import kind_of
from experiments.playbook.recipes import RECIPES


@pytest.mark.parametrize("name", ladder_workload.CASES)
def test_every_case_is_a_ladder_that_its_store_knows_again(name: str, tmp_path: Path) -> None:
    spec = kind_of("ladder").check({**ladder_workload.CASES[name][0](tmp_path), "repeats": "5"})
    assert kind_of("ladder").check(spec) == spec


def test_the_long_documents_are_the_recipes() -> None:
    assert ladder_workload.documents(Path())["recipe"] in RECIPES


def result(outcomes: dict[str, str], goodput: float | None = 80.0, **more: Any) -> dict[str, Any]:
    codes = {ladder_workload.LOSS: "quality_lost", ladder_workload.SLOW: "worse"}
    steps = [{"name": name, "outcome": outcome, "reasons": [{"code": codes.get(name, "better")}]}
             for name, outcome in outcomes.items()]  # fmt: skip
    curve = {"name": "goodput_rps", "change_pct": goodput, "verdict": "better",
             "samples": {"baseline": [0.0, 0.0], "candidate": [1.0, 1.0]}, **more}  # fmt: skip
    return {"steps": steps, "overall": {"reasons": [], "comparison": {"curves": [curve]}}}


RIGHT = {"continuous-paged": "adopted", "kv-int8": "adopted", "draft": "rolled back",
         ladder_workload.LOSS: "rolled back", ladder_workload.SLOW: "rolled back"}  # fmt: skip


def holds(found: dict[str, Any]) -> list[bool]:
    return [one for _, one in ladder_workload.as_built(found)]


def test_it_holds_only_when_exactly_what_pays_is_adopted_and_goodput_rises() -> None:
    assert all(holds(result(RIGHT))) and all(holds(result(RIGHT, None)))
    assert holds(result({**RIGHT, "speculation": "adopted"})) == [False, True, True, True]
    assert holds(result({**RIGHT, "kv-int8": "undecided"})) == [False, True, True, True]
    assert holds(result(RIGHT, 20.0)) == [True, True, True, False]


def test_a_loss_that_was_refused_for_something_else_does_not_count() -> None:
    found = result(RIGHT)
    for row in found["steps"]:
        row["reasons"] = [{"code": "no_gain"}]
    assert holds(found)[1:3] == [False, False]


def test_an_end_that_is_worse_in_a_guarded_curve_fails() -> None:
    worse = result(RIGHT, -20.0, verdict="worse")
    assert [one for _, one in ladder_workload.no_worse(worse)] == [False]
    name = worse["overall"]["comparison"]["curves"][0]["name"]
    worse["overall"]["reasons"] = [{"code": "allowed", "curves": [{"name": name}]}]
    assert [one for _, one in ladder_workload.no_worse(worse)] == [True], "an objective on it allows that"
    assert [one for _, one in ladder_workload.no_worse({"overall": None})] == [True]
