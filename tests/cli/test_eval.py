"""`trilemma eval`: one clear line for what is wrong, a table, one JSON object, and a run that is resumed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.cli import run
from experiments.store import Store
from tests.core_engine.conftest import make_llama

ROW = {"id": "a", "slice": "facts", "prompt": "The capital of France is", "choices": [" Paris", " Rome"], "answer": 0}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tiny_settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    settings = {"model": directory, "dtype": "fp32", "device": "cpu", "threads": 1, "kv_memory_mib": 4}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def written(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("trilemma: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("eval --vary weights", "--vary"),
        ("eval --vary dtype=", "--vary"),
        ("eval --vary dtype=fp64", "dtype"),
        ("eval --baseline nope=1", "nope"),
        ("eval --set dtype", "--set"),
        ("eval --items /nowhere/items.jsonl", "--items"),
        ("eval --texts /nowhere/text.txt", "--texts"),
        ("eval --items none --texts none", "--items"),
        ("eval --slices nothing", "nothing"),
        ("eval --limit many", "--limit"),
        ("eval --seed x", "--seed"),
        ("eval --resume nosuch", "nosuch"),
        ("eval --resume nosuch --limit 3", "--resume"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(line: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert named in one_line(capsys)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "at least one item"),
        (["not json"], "line 1"),
        ([json.dumps(ROW), "", json.dumps({**ROW, "id": "b", "answer": 2})], "line 3: answer"),
        ([json.dumps({key: value for key, value in ROW.items() if key != "prompt"})], "line 1: prompt"),
        ([json.dumps({**ROW, "slice": "all"})], "slice"),
    ],
)
def test_a_faulty_items_file_names_file_line_and_field(
    lines: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "mine.jsonl", *lines)
    assert run(["eval", "--items", path, "--texts", "none"]) == 2
    line = one_line(capsys)
    assert named in line and ("mine.jsonl" in line or named == "slice")
    assert Store().list_runs() == []


def test_a_table_by_slice_and_one_json_object(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    rows = [{**ROW, "id": str(number), "slice": f"s{number % 2}"} for number in range(6)]
    items = written(tmp_path / "items.jsonl", *map(json.dumps, rows))
    text = written(tmp_path / "text.txt", "A few words of plain text, and a few more of them.")
    options = ["eval", *tiny_settings, "--items", items, "--texts", text, "--vary", "block_size=8"]
    assert run(options) == 0
    out, err = capsys.readouterr()
    assert "block_size=8 against the baseline" in out and "s0" in out and "perplexity" in out
    assert "what the mean hides: none" in out and "loading the model" in err  # later stages may be too short to be seen
    request.getfixturevalue("worker_here")  # the loading of a process of its own was seen
    assert run([*options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (candidate,) = result["candidates"]
    row = candidate["slices"][0]
    assert {"slice", "accuracy", "ci95", "change_points", "change_ci95", "p_adjusted", "verdict"} <= set(row)
    assert {"perplexity", "change_pct", "kl_mean", "top1_agreement", "window_tokens"} <= set(candidate["texts"][0])
    run_id = result["run_id"]
    assert run(["runs", "show", run_id]) == 0 and "block_size=8" in capsys.readouterr().out
    assert run(["runs", "trace", run_id]) == 2
    capsys.readouterr()
    Store().update_run(run_id, state="failed", error="the engine process ended")
    assert run(["eval", "--resume", run_id, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "environment": None} == {**result, "environment": None}  # the load differs


@pytest.mark.usefixtures("worker_here")
def test_without_a_candidate_the_baseline_is_evaluated_alone(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = written(tmp_path / "items.jsonl", json.dumps(ROW))
    pairs = zip(tiny_settings[::2], tiny_settings[1::2], strict=True)
    settings = [part for pair in pairs if pair[1] != "dtype=fp32" for part in pair]
    assert run(["eval", *settings, "--items", items, "--texts", "none"]) == 0
    out = capsys.readouterr().out
    assert "no signal" in out and "what the mean hides" not in out


def kept(store: Store) -> dict[str, bytes]:
    """What is in the store of scores, by key."""
    with closing(sqlite3.connect(store.path)) as database:
        return dict(database.execute("SELECT key, body FROM scores"))


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """The numbers and texts of a JSON object by their places."""
    if not isinstance(value, dict | list):
        return {place: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: one for name, part in parts for key, one in flat(part, f"{place}/{name}").items()}


def test_a_killed_evaluation_is_resumed_to_the_result_of_one_that_was_not(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL in the middle of the items: no handler runs, and whatever was not yet kept is lost."""
    rows = [
        {**ROW, "id": str(number), "slice": f"s{number % 2}", "prompt": f"Of {number}, " + "and so on, " * 12 + "it is"}
        for number in range(400)
    ]
    items = written(tmp_path / "items.jsonl", *map(json.dumps, rows))
    text = written(tmp_path / "text.txt", "A few words of plain text, and a few more of them.")
    options = ["eval", *tiny_settings, "--items", items, "--texts", text, "--vary", "block_size=8", "--json"]
    spec = {
        "settings": dict(part.split("=", 1) for part in tiny_settings[1::2]),
        "items": [items], "texts": [text], "vary": ["block_size", ["8"]],
    }  # fmt: skip
    store = Store()
    run_id = jobs.start("eval", spec, store)
    deadline = time.monotonic() + 300
    while len(kept(store)) < 33:  # a batch, or what the baseline holds and a batch
        assert time.monotonic() < deadline and jobs.status(run_id, store).state in jobs.ACTIVE
        time.sleep(0.005)
    process = store.get_run(run_id).pid
    assert process is not None
    os.kill(process, signal.SIGKILL)
    killed = jobs.wait(run_id, store)
    before = kept(store)
    assert (killed.state, killed.result) == ("failed", None) and str(killed.error).startswith(jobs.ENDED)
    assert 32 <= len(before) < 2 * len(rows)
    assert run(["eval", "--resume", run_id, "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    after = kept(store)
    assert {key: after[key] for key in before} == before and len(after) > 2 * len(rows)
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "elsewhere"))
    assert run(options) == 0
    whole = json.loads(capsys.readouterr().out)
    assert resumed["run_id"] == run_id
    same = {"environment": None, "run_id": None}
    one, other = flat({**resumed, **same}), flat({**whole, **same})
    assert one.keys() == other.keys()
    for place, value in one.items():
        # What is resumed finds an empty prefix cache, so that its sums come in other pieces: the last bits differ.
        expected = pytest.approx(other[place], rel=1e-3, abs=1e-5) if isinstance(value, float) else other[place]
        assert value == expected, place
