"""`trilemma sweep` up to the point where a model would be loaded."""

from __future__ import annotations

import json

import pytest

from experiments.cli import run
from experiments.store import Store


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))


def test_a_dry_run_prints_the_points_and_runs_nothing(capsys):
    assert run(["sweep", "--over", "concurrency=1,4,16", "--repeats", "2", "--slo", "ttft_p95=1", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "4 at a time" in out and "64" in out and "nothing was run" in out and "searched" in out
    assert "--set max_num_seqs=16" in err
    assert Store().list_runs() == []


def test_a_dry_run_of_auto_says_what_is_known_later(capsys):
    assert run(["sweep", "--over", "auto", "--points", "3", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["label"] for point in found["points"]] == ["1 at a time", "all at once"]
    assert found["later"] == 3 and found["estimate_s"] is None and "nothing with this workload" in found["estimate_how"]


def test_a_dry_run_takes_its_time_from_what_was_measured(capsys):
    store = Store()
    spec = {"workload": "mixed", "settings": {}}
    store.update_run(
        store.create_run("bench", spec), state="done",
        result={"output_tokens_per_s": 100.0, "concurrency": {"mean": 4.0}},
    )  # fmt: skip
    assert run(["sweep", "--over", "concurrency=1,8", "--dry-run", "--json"]) == 0
    one, eight = json.loads(capsys.readouterr().out)["points"]
    assert one["estimate_s"] == pytest.approx(20 * 71.6 / 25, rel=0.05)  # a quarter of the speed of four at once
    assert eight["estimate_s"] == pytest.approx(32 * 71.6 / 100, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--over", "concurrency"], "--over"),
        (["--over", "auto=1"], "--over"),
        (["--over", "nothing=1,2"], "--over"),
        (["--over", "rate=0"], "--over rate"),
        (["--over", "rate=1", "--headroom", "2"], "--headroom"),
        (["--resume", "00000000"], "run"),
        (["--resume", "00000000", "--over", "rate=1"], "--resume"),
    ],
)
def test_wrong_input_is_one_line_that_names_it(arguments, named, capsys):
    assert run(["sweep", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"trilemma: {named}: ")
