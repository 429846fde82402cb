"""Runs out of the store and into it again, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from experiments.spec import BenchSpec
from experiments.store import Store

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run_id() -> str:
    store = Store()
    run_id = store.create_run("bench", {**BenchSpec().to_dict()}, state="failed", error="Bearer abcdefgh refused")
    store.add_record(run_id, 0, 1, {"requests": [{"id": "r0"}]})
    return run_id


def test_a_run_is_exported_deleted_and_imported(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.trilemma.zip"
    assert run(["runs", "export", run_id, "--out", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run_id"], told["records"], told["withheld"]) == (run_id, 1, ["run.error"])
    assert run(["runs", "import", str(path)]) == 2
    assert "not stored here yet" in capsys.readouterr().err
    assert run(["runs", "delete", run_id]) == 0
    assert run(["runs", "import", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": run_id, "kind": "bench", "state": "failed"}
    assert Store().record(run_id, 0, 1) == {"requests": [{"id": "r0"}]}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["export", "nope", "--out", "x.zip"], "nope"),
        (["export", "{id}"], "--out"),
        (["export", "{id}", "--out", "/nowhere/at/all.zip"], "can be written"),
        (["import", "/nowhere/at/all.zip"], "/nowhere/at/all.zip"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_no_file(
    run_id: str, arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["runs", *(text.format(id=run_id) for text in arguments)]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not (tmp_path / "x.zip").exists()
