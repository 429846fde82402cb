"""`trilemma report` for a run of any kind, and what is wrong with the options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from experiments.report import FORMATS
from experiments.spec import BenchSpec
from experiments.store import Store


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    store = Store()
    run_id = store.create_run("bench", BenchSpec().to_dict(), state="done")
    store.update_run(run_id, result={"output_tokens_per_s": 12.5, "provenance": "measured"})
    return run_id


def test_a_report_is_written_as_html_or_json_in_both_languages(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", run_id]) == 0
    assert 'lang="en"' in (tmp_path / f"trilemma-{run_id}.html").read_text()
    assert run(["report", run_id, "--out", "a.html", "--lang", "zh"]) == 0
    assert 'lang="zh-CN"' in (tmp_path / "a.html").read_text()
    assert run(["report", run_id, "--out", "a.json"]) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["run"]["id"] == run_id and "12.5 output tokens/s" in found["verdict"]
    capsys.readouterr()
    assert run(["report", run_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_every_format_is_written_by_name_or_by_the_files_ending(run_id: str, tmp_path: Path) -> None:
    for form in FORMATS:
        assert run(["report", run_id, "--format", form]) == 0
        assert run(["report", run_id, "--out", f"b.{form}"]) == 0
        named, ended = tmp_path / f"trilemma-{run_id}.{form}", tmp_path / f"b.{form}"
        assert named.read_bytes() == ended.read_bytes() and named.stat().st_size > 100
    assert "12.5" in (tmp_path / "b.md").read_text() and "12.5" in (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--lang", "fr"], "fr"),
        (["--out", "a.pdf"], "a.pdf"),
        (["--out", "/nowhere/at/all.html"], "/nowhere"),
        (["--format", "pdf"], "pdf"),
        (["--format", "md", "--out", "a.html"], "a.html"),
    ],
)
def test_what_is_wrong_is_one_line(
    run_id: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", run_id, *options]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert run(["report", "nope"]) == 2
