"""`trilemma sweep` up to the point where a model would be loaded."""

from __future__ import annotations

import json

import pytest

from experiments import calibrate
from experiments.cli import run
from experiments.store import Store
from tests.experiments.predicted import calibrated_here


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
    assert found["later"] == 3 and found["estimate_s"] is None and "trilemma calibrate" in found["estimate_how"]


def test_a_dry_run_that_knows_no_time_says_what_would_tell_it(capsys, tmp_path):
    assert run(["sweep", "--over", "concurrency=1,2", "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "how long is not known" in out and "a bench tells" in out and "trilemma calibrate" in out
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    assert run(["sweep", "--workload", str(trace), "--over", "concurrency=1,2", "--dry-run"]) == 0
    assert "bench --dry-run" in " ".join(capsys.readouterr().out.split())


def planned(capsys, *options):
    assert run(["sweep", "--over", "concurrency=1,8", "--dry-run", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_first_dry_run_takes_its_time_from_the_simulators_calibration(capsys):
    calibrated_here()
    found = planned(capsys)
    one, eight = (point["estimate_s"] / point["requests"] for point in found["points"])
    assert found["estimate_is"] == "about" and "calibrated" in found["estimate_how"] and one > eight > 0
    calibrated_here(times=2.0)
    assert planned(capsys)["estimate_s"] == pytest.approx(2 * found["estimate_s"], rel=0.1)


def test_without_it_the_models_size_and_the_ceilings_give_the_least_time(capsys):
    measured_ceilings(bandwidth=20e9)
    found = planned(capsys)
    one = found["points"][0]["estimate_s"]
    # Every token of one client reads the weights, of 16 or 32 bits: 134.5 million parameters, 20 answers of 71.6.
    assert 20 * 71.6 * 2 * 134.5e6 / 20e9 * 0.9 < one < 20 * 71.6 * 4 * 134.5e6 / 20e9 * 1.5
    assert found["estimate_is"] == "at least" and "ceilings" in found["estimate_how"]
    measured_ceilings(bandwidth=10e9)
    assert planned(capsys)["points"][0]["estimate_s"] == pytest.approx(2 * one, rel=0.1)
    assert run(["sweep", "--over", "concurrency=1,8", "--dry-run"]) == 0
    assert "at least" in capsys.readouterr().out


def measured_ceilings(bandwidth):
    """Keep ceilings of this machine's processor, as `trilemma calibrate` does."""
    rate = {"median": bandwidth}
    device = {
        "device": "cpu", "name": "a processor", "memory_bytes": 2**33, "memory_source": "system",
        "bandwidth": {"read": rate, "copy": rate},
        "gemm": {"fp32": {"median": 1e12}, "bf16": {"median": 1e12}},
    }  # fmt: skip
    calibrate.store(
        {"version": calibrate.VERSION, "devices": [device], "date": "2026-01-01", "torch": "2", "threads": 1}
    )


def test_a_run_of_another_workload_with_the_same_settings_tells_too(capsys):
    store = Store()
    run_id = store.create_run("bench", {"workload": "chat", "settings": {}})
    store.update_run(run_id, state="done", result={"output_tokens_per_s": 100.0, "concurrency": {"mean": 4.0}})
    measured_ceilings(bandwidth=20e9)
    found = planned(capsys)
    assert found["estimate_is"] == "about"
    assert found["estimate_how"] == f"speeds measured in run {run_id}, of another workload"
    assert planned(capsys, "--set", "kv_dtype=int8")["estimate_is"] == "at least"


def test_requests_that_are_too_few_for_the_clients_are_told(capsys):
    assert run(["sweep", "--over", "concurrency=1,2", "--requests", "4", "--dry-run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [point["requests"] for point in json.loads(out)["points"]] == [4, 8]
    assert "4 a client are sent (8 at 2 clients)" in json.loads(out)["warnings"][0] and not err
    assert run(["sweep", "--over", "concurrency=1,2", "--requests", "8", "--dry-run"]) == 0
    assert "a client are sent" not in capsys.readouterr().err


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
