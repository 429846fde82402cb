"""`trilemma variables` and `trilemma workloads` list what the registries hold, in words and as JSON."""

from __future__ import annotations

import json

import pytest

from core_engine.variables import VARIABLES
from experiments.cli import run
from experiments.workloads import WORKLOADS


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 0
    return capsys.readouterr().out


def test_every_variable_is_listed_with_its_default_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "variables")
    for name, one in VARIABLES.items():
        assert f"  {name} = " in text and one.help in text and one.accepted() in text
    assert "e+0" not in text, "bounds are read by people"
    found = json.loads(said(capsys, "variables", "--json"))["variables"]
    assert [row["name"] for row in found] == list(VARIABLES) and all(row["accepted"] for row in found)


def test_one_variable_names_what_it_goes_with_and_its_peers(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "variables", "max_num_seqs")
    assert "vLLM: --max-num-seqs" in text and "should move: ttft_s" in text
    contiguous = said(capsys, "variables", "kv_layout")
    assert "contiguous can't go with" in contiguous or "contiguous needs" in contiguous
    assert run(["variables", "batchin"]) == 2
    assert "did you mean batching" in capsys.readouterr().err


def test_every_workload_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "workloads")
    for name, spec in WORKLOADS.items():
        assert f"{name} " in text and spec.description in text
    assert [row["name"] for row in json.loads(said(capsys, "workloads", "--json"))["workloads"]] == list(WORKLOADS)
