"""Warnings before a comparison runs: that its effect can't show, and which setting would show it."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.compare import run_comparison
from experiments.foresight import foreseen, never_drafted
from experiments.spec import CompareSpec
from tests.experiments.fakes import FakeRig, VirtualClock


def spec(**fields: Any) -> CompareSpec:
    return CompareSpec.from_dict({"variable": "speculation", "values": ["off", "ngram"], **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"variable": "num_draft_tokens", "values": [2, 4]}, "--set speculation=ngram"),
        ({"variable": "overlap", "values": ["off", "on"], "settings": {"device": "cpu"}}, "--set device=cuda"),
        ({"variable": "tensor_parallel", "values": [1, 2], "settings": {"device": "cpu"}}, "--set device=cuda"),
        ({"variable": "draft_control", "values": ["adaptive", "fixed"]}, "--set speculation=ngram"),
        ({"workload": "mixed", "settings": {"draft_control": "fixed"}}, "--workload copy"),
        ({"workload": "copy"}, "--set draft_control=fixed"),
    ],
)
def test_an_effect_that_can_not_show_names_the_setting_that_shows_it(fields: dict[str, Any], said: str) -> None:
    (warning,) = foreseen(spec(**fields))
    assert said in warning and "\n" not in warning


@pytest.mark.parametrize(
    "fields",
    [
        {"workload": "copy", "settings": {"draft_control": "fixed"}},
        {"variable": "num_draft_tokens", "values": [2, 4], "workload": "code", "settings": {"speculation": "ngram"}},
        {"variable": "batching", "values": ["static", "continuous"]},
    ],
)
def test_nothing_is_said_where_the_effect_can_show(fields: dict[str, Any]) -> None:
    assert foreseen(spec(**fields)) == []


def test_the_result_says_it_too_and_that_nothing_was_drafted() -> None:
    clock = VirtualClock()
    short = {"num_requests": 2, "repeats": 2, "max_tokens_cap": 4, "workload": "equal"}
    result = run_comparison(spec(**short), None, "", rig=FakeRig(clock))
    said = " ".join(result["warnings"])
    assert "--workload copy" in said and "no token was ever drafted with ngram" in said
    assert "drafted with off" not in said


def test_drafts_are_told_from_none() -> None:
    assert never_drafted({"tokens_per_pass": 1.0, "drafted_tokens": 0})
    assert not never_drafted({"tokens_per_pass": 2.0, "drafted_tokens": 5})
    assert not never_drafted({"tokens_per_pass": None})
