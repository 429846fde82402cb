"""`trilemma speculation`: wrong input is one line and exit code 2, and a stored result is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cli import run
from experiments.cli.progress import _Lines
from experiments.speculation.run import run_speculation
from experiments.speculation.spec import SpeculationSpec
from experiments.store import Store
from tests.experiments.fakes import FakeRig, VirtualClock


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--forms", "guessing"], "--forms"),
        (["--tasks", "poetry"], "--tasks"),
        (["--drafts", "0"], "num_draft_tokens"),
        (["--set", "speculation=ngram"], "speculation"),
        (["--resume", "nothing"], "run"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    assert run(["speculation", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "Traceback" not in error and len(error.splitlines()) == 1


def test_a_stored_run_is_listed_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    store, clock = Store(), VirtualClock()
    spec = SpeculationSpec.from_dict(
        {"forms": ["ngram"], "tasks": ["copy"], "prompts": 1, "repeats": 1, "batches": [], "constructed": False}
    ).to_dict()
    run_id = store.create_run("speculation", spec)
    result = run_speculation(spec, store, run_id, rig=FakeRig(clock), spend=clock.sleep)
    store.update_run(run_id, state="done", result=result)
    assert run(["runs", "show", run_id]) == 0
    shown = capsys.readouterr().out
    assert "copy: 1 prompt, one at a time" in shown and "ngram" in shown and "1/1" in shown
    (row,) = result["tasks"][0]["rows"]
    assert row["verdict"] == "inconclusive" and row["advice"]["verdict"] == "unknown"  # one repeat decides nothing


def test_progress_of_more_arms_than_have_names_is_told_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Lines(["baseline", "candidate"])
    for arm in (1, 9):
        show({"phase": "running", "arm": arm, "repeat": 1, "repeats": 2})
    assert capsys.readouterr().err.splitlines() == [
        "measuring candidate, repeat 1 of 2", "measuring arm 10, repeat 1 of 2"
    ]  # fmt: skip
