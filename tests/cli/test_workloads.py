"""Workloads on the command line: what would be sent, a closed loop, a trace, and what was changed of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from tests.core_engine.conftest import make_llama


@pytest.fixture(scope="module")
def tiny_settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that run a tiny random model."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    settings = {"model": directory, "dtype": "fp32", "device": "cpu", "threads": 1, "kv_memory_mib": 4}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,3\n0.01,40,3\n0.02,5,0\n0.03,10,9\n")
    return str(path)


def test_a_dry_run_says_what_would_be_sent_and_stores_nothing(
    tiny_settings: list[str], trace: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "--workload", trace, "--max-prompt", "30", "--time-scale", "2", "--dry-run", *tiny_settings]
    assert run(line) == 0
    printed = capsys.readouterr().out
    for words in ("3 requests", "1 prompt_tokens clipped", "1 dropped: no answer", "time scale 2", "sha256", "p99"):
        assert words in printed
    assert run([*line, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["num_requests"], described["provenance"]) == (3, "computed")
    assert not home.exists()


@pytest.mark.usefixtures("worker_here")
def test_a_closed_loop_over_a_trace_runs_and_its_result_says_what_was_changed(
    tiny_settings: list[str], trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "--workload", trace, "--concurrency", "1", "--max-output", "4", *tiny_settings]
    assert run([*line, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["completed"], result["workload"]["concurrency"]) == (3, 1)
    assert result["workload"]["clipped"] == {"prompt_tokens": 0, "output_tokens": 1}
    assert result["workload"]["trace"]["rows_used"] == 3


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("bench --workload /nowhere/a.csv", 3, "/nowhere/a.csv"),
        ("bench --workload mixed --concurrency 2 --rate 1", 2, "rate_rps"),
        ("bench --workload mixed --length-scale 0", 2, "length_scale"),
        ("compare --vary batching=static,continuous --workload trace:x:y", 2, "FORMAT"),
    ],
)
def test_a_wrong_load_ends_with_one_line(line: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == code
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and words in errors[0]
