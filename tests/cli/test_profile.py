"""`trilemma profile`: wrong input is one line and exit code 2, a profile runs as a job and is printed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from experiments.store import Store
from tests.core_engine.conftest import make_llama


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "decode:1"], "--step"),
        (["--vary", "fused_ops"], "--vary"),
        (["--vary", "batching=static,continuous"], "batching"),
        (["--vary", "fused_ops=on"], "2 to 6"),
        (["--set", "max_num_seqs=3"], "max_num_seqs"),
        (["--repeats", "many"], "--repeats"),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    assert run(["profile", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "Traceback" not in error and len(error.splitlines()) == 1
    assert Store().list_runs(limit=5) == []


@pytest.mark.usefixtures("worker_here")
def test_a_profile_is_a_job_whose_result_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    model = tmp_path / "tiny"
    model.mkdir()
    make_llama(model)
    sets = [word for one in (f"model={model}", "dtype=fp32", "device=cpu") for word in ("--set", one)]
    asked = ["--step", "decode:1x16", "--vary", "fused_ops=off,on", "--repeats", "2", *sets]
    assert run(["profile", *asked, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [arm["value"] for arm in result["arms"]] == ["off", "on"] and result["provenance"] == "measured"
    assert run(["runs", "show", result["run_id"]]) == 0
    shown = capsys.readouterr().out
    assert "decode:1x16" in shown and "fused_ops=on against off" in shown and "measured" in shown
    assert run(["runs"]) == 0 and "fused_ops=off,on" in capsys.readouterr().out
    assert run(["runs", "trace", result["run_id"]]) == 2
