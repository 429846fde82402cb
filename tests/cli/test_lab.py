"""`trilemma lab`: every step a command, refusals in one line, both languages, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import jobs
from experiments.cli import run
from experiments.store import Store
from tests.experiments.labs.scripted import scripted_result


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(kind: str, spec: object, store: Store, **_: object) -> str:
        run_id = store.create_run(kind, jobs.checked_spec(kind, spec))  # type: ignore[arg-type]
        result = scripted_result("memory-ledger", kind, json.dumps(spec))
        store.update_run(run_id, state="done", result=result)
        return run_id

    monkeypatch.setattr(jobs, "start", start)


def lab(*arguments: str) -> int:
    return run(["lab", *arguments])


def test_the_list_shows_every_lab_in_the_language_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert lab() == 0 and "memory-ledger" in capsys.readouterr().out
    assert lab("list", "--lang", "zh") == 0
    assert "未开始" in capsys.readouterr().out
    assert lab("list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["labs"]
    assert {"triangle", "memory-ledger"} <= {row["id"] for row in rows} and {row["state"] for row in rows} == {"new"}


def test_a_lab_step_by_step_to_its_score(capsys: pytest.CaptureFixture[str], scripted: None) -> None:
    assert lab("predict", "memory-ledger", "2912") == 0
    assert "lab run memory-ledger" in capsys.readouterr().out
    assert lab("run", "memory-ledger") == 0
    assert "[measured]" in capsys.readouterr().out
    assert lab("answer", "memory-ledger", "token", "11520 B") == 0
    assert "Only the keys were counted" in capsys.readouterr().out
    assert lab("answer", "memory-ledger", "token", "22.5 KiB", "--lang", "zh") == 0
    assert "正确" in capsys.readouterr().out
    assert lab("answer", "memory-ledger", "thirteen", "100 GB") == 0
    assert "GB and GiB" in capsys.readouterr().out
    assert lab("show", "memory-ledger", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["score"]["points"] == 0.5 and shown["state"] == "measured"
    assert lab("score", "memory-ledger") == 0 and "Not passed yet" in capsys.readouterr().out
    assert lab("reset", "memory-ledger") == 0
    assert lab("show", "memory-ledger", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["state"] == "new"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["answer", "triangle", "itl", "2"], "a prediction first"),
        (["run", "triangle"], "a prediction first"),
        (["predict", "triangle", "much"], "answer"),
        (["predict", "triangle", "5 GB"], "GB"),
        (["predict", "no-such-lab", "5"], "lab"),
        (["show", "triangle", "--lang", "fr"], "--lang"),
        (["show", "triangle", "--learner", "../x"], "--learner"),
    ],
)
def test_wrong_input_is_one_line_that_names_it(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab(*arguments) == 2
    err = capsys.readouterr().err
    assert named in err and err.count("\n") == 1


def test_without_a_terminal_the_steps_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert lab("start", "triangle") == 3
    assert "lab show, predict, run" in capsys.readouterr().err


def test_a_terminal_goes_through_the_whole_lab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scripted: None
) -> None:
    typed = iter(["nonsense", "3000", "", "23040", "107.4 GB", "343.6", "1.19", "28", "a", "b"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt="": next(typed))
    assert lab("start", "memory-ledger") == 0
    assert "7 of 7 points" in capsys.readouterr().out


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_lab_has_a_report_once_its_experiment_is_done(
    lang: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], scripted: None
) -> None:
    page, text = tmp_path / "lab.html", tmp_path / "lab.md"
    assert lab("report", "memory-ledger", "--out", str(page)) == 2
    assert "trilemma lab run memory-ledger" in capsys.readouterr().err and not page.exists()
    lab("predict", "memory-ledger", "2912")
    lab("run", "memory-ledger")
    lab("answer", "memory-ledger", "token", "11520 B")
    assert lab("report", "memory-ledger", "--out", str(page), "--lang", lang) == 0
    assert lab("report", "memory-ledger", "--out", str(text), "--lang", lang) == 0
    capsys.readouterr()
    told = {"en": ("Only the keys were counted", "Not answered."), "zh": ("只算了 K", "未作答。")}[lang]
    for made in (page.read_text("utf-8"), text.read_text("utf-8")):
        assert "11520 B" in made and "2,912" in made and all(one in made for one in told)
    assert lab("report", "memory-ledger", "--format", "pdf") == 2
    assert "html, md" in capsys.readouterr().err
