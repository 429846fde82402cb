"""A misspelt name is told with the one that was most likely meant, on the same line as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_engine.model.loader import model_path
from core_engine.variables import parse_value, variable
from experiments.claims import get_claim
from experiments.labs import get_lab
from experiments.levers.catalogue import LEVERS, lever
from experiments.playbook.recipes import get_recipe
from experiments.sweep.spec import parse_over
from experiments.workloads.source import find
from ledger.errors import InputError, unknown_name
from ledger.hardware import accelerator


@pytest.mark.parametrize(
    ("ask", "typed", "meant"),
    [
        (variable, "batchng", "batching"),
        (variable, "Max_Num_Seq", "max_num_seqs"),
        (lambda text: parse_value("batching", text), "continous", "continuous"),
        (lambda text: parse_over(f"{text}=1,2"), "concurency", "concurrency"),
        (find, "mixd", "mixed"),
        (get_claim, "10", "C10"),
        (model_path, "embeded", "embedded"),
        (accelerator, "h100-sxmm", "h100-sxm"),
        (get_recipe, "roll-out", "rollout"),
        (lever, f"{next(iter(LEVERS))}x", next(iter(LEVERS))),
        (get_lab, "trianlge", "triangle"),
    ],
)
def test_the_name_that_was_meant_stands_at_the_end_of_the_line(
    ask: Callable[[str], Any], typed: str, meant: str
) -> None:
    with pytest.raises(InputError) as caught:
        ask(typed)
    told = str(caught.value)
    assert " is not accepted; accepted: " in told and told.endswith(f"; did you mean {meant}?") and "\n" not in told


@pytest.mark.parametrize("typed", ["nope", "", "x" * 500])
def test_what_is_like_no_name_is_told_as_before(typed: str) -> None:
    error = unknown_name("variable", typed, ("batching", "dtype"))
    assert str(error) == f"variable: {typed!r} is not accepted; accepted: batching, dtype"


def test_many_names_are_listed_only_where_none_is_near() -> None:
    many = [f"variable_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    near, far = unknown_name("variable", "varable_k", many), unknown_name("variable", "nope", many)
    assert str(near).endswith("accepted: one of 26 names; did you mean variable_k?")
    assert all(name in str(far) for name in many)
