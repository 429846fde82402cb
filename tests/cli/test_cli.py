"""The command line: exit codes, one clear line, one JSON object, and jobs that end with it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run
from experiments.cli.ui import require_free_port
from experiments.store import Store
from ledger.errors import CannotRunError
from tests.core_engine.conftest import make_llama

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run store of its own for every test."""
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tiny_settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that run a tiny random model."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, max_position_embeddings=1024)  # room for the prefix of shared-prefix
    settings = {"model": directory, "dtype": "fp32", "device": "cpu", "threads": 1, "kv_memory_mib": 4}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def one_object(text: str) -> Any:
    """The one JSON object that stdout must be."""
    return json.loads(text)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("compare", "--vary"),
        ("compare --vary batching=static", "--vary"),
        ("compare --vary batching=static,continuous,dynamic", "--vary"),
        ("compare --vary batching=static,continuous --vary seed=1,2", "--vary"),
        ("compare --vary batching=static,continuous,seed=1,2", "--vary"),
        ("compare --vary nope=1,2", "nope"),
        ("compare --vary max_num_seqs=0,4", "max_num_seqs"),
        ("compare --vary max_num_seqs=2,4x", "max_num_seqs"),
        ("compare --vary batching=static,continuous --set batching=static", "batching"),
        ("compare --vary batching=static,continuous --set threads=-1", "threads"),
        ("compare --vary batching=static,continuous --set threads", "--set"),
        ("compare --vary batching=static,continuous --workload nope", "workload"),
        ("compare --vary batching=static,continuous --repeats 0", "repeats"),
        ("compare --vary batching=static,continuous --repeats x", "repeats"),
        ("compare --vary batching=static,continuous --requests 0", "num_requests"),
        ("compare --vary batching=static,continuous --rate nan", "rate_rps"),
        ("compare --vary batching=static,continuous --seed -1", "seed"),
        ("compare --vary batching=static,continuous --slo ttft=1", "slo"),
        ("compare --vary batching=static,continuous --price-per-device-hour free", "price_per_device_hour"),
        ("compare --vary batching=static,continuous --report /nowhere/at/all.html", "/nowhere/at/all.html"),
        ("bench --workload nope", "workload"),
        ("bench --bogus", "--bogus"),
        ("generate --prompt hi --max-tokens 0", "max_tokens"),
        ("generate --prompt hi --max-tokens x", "--max-tokens"),
        ("generate --prompt hi --temperature nan", "--temperature"),
        ("generate --prompt hi --set model=/nowhere", "model"),
        ("generate", "--prompt"),
        ("kv", "CONFIG"),
        ("kv embedded", "--seq-len"),
        ("kv --seq-len 8", "CONFIG"),
        ("kv --seq-len x embedded", "--seq-len"),
        ("kv --seq-len 0 embedded", "seq_len"),
        ("kv --seq-len 8 --layers 2", "--kv-heads"),
        ("kv --seq-len 8 --layers 2 embedded", "--layers"),
        ("kv --seq-len 8 /nowhere/config.json", "/nowhere/config.json"),
        ("kv --seq-len 8 --kv-dtype int3 embedded", "kv_dtype"),
        ("runs show nope", "nope"),
        ("runs delete nope", "nope"),
        ("runs export nope --html x.html", "nope"),
        ("claims run C99", "C99"),
        ("ui --port 0", "--port"),
        ("fly", "fly"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(line: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and named in captured.err
    assert Store().list_runs() == []


def test_an_empty_prompt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--prompt", ""]) == 2
    assert "--prompt" in capsys.readouterr().err


def test_a_store_that_cannot_be_made_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "file" / "home"))
    assert run(["runs"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fault_of_ours_is_exit_code_1_with_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("ledger.kv_cache.kv_report", broken)
    assert run(["kv", "embedded", "--seq-len", "8"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "a fault of ours: ZeroDivisionError: oops; log: " in error
    assert "Traceback" in Path(error.strip().rsplit("log: ", 1)[1]).read_text()


def test_kv_from_a_preset_and_from_typed_fields_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "embedded", "--seq-len", "1000", "--concurrency", "2", "--json"]) == 0
    preset = one_object(capsys.readouterr().out)
    typed_fields = ["--layers", "30", "--kv-heads", "3", "--head-dim", "64"]
    assert run(["kv", "--seq-len", "1000", "--concurrency", "2", *typed_fields, "--json"]) == 0
    typed = one_object(capsys.readouterr().out)
    assert preset["kv_bytes_per_token"] == typed["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 2
    assert preset["kv_bytes_total"] == typed["kv_bytes_total"] == 2 * 1000 * 23_040


def test_a_length_over_the_models_maximum_is_computed_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "embedded", "--seq-len", "1000000", "--json"]) == 0
    captured = capsys.readouterr()
    assert "warning" in captured.err
    assert one_object(captured.out)["kv_bytes_per_sequence"] == 23_040_000_000


def test_doctor_tells_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    names = {check["name"] for check in found["checks"]}
    assert {
        "python",
        "torch",
        "cpu",
        "memory",
        "threads",
        "kernels",
        "cuda",
        "nvml",
        "embedded model",
        "quantized models",
        "run store",
    } <= names
    (quantized,) = [check["value"] for check in found["checks"] if check["name"] == "quantized models"]
    assert re.fullmatch(r"\d+ calibrated in .*quant, [\d,.]+ of at most 4,096 MiB", quantized)
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ready: trilemma ui opens the page")


@pytest.mark.usefixtures("worker_here")
def test_claims_are_listed_and_a_formula_is_checked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "--json"]) == 0
    assert len(one_object(capsys.readouterr().out)["claims"]) == 50
    assert run(["claims", "run", "C45", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["verdict"] == "holds with a limit"


def test_generate_gives_the_designs_keys(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--prompt", "abc", "--max-tokens", "5", *tiny_settings, "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    assert {"text", "token_ids", "finish_reason", "prompt_tokens", "completion_tokens", "timings"} <= found.keys()
    assert found["prompt_tokens"] == 3
    assert found["completion_tokens"] == len(found["token_ids"]) <= 5
    assert run(["generate", "--prompt", "abc", "--max-tokens", "5", *tiny_settings]) == 0
    assert capsys.readouterr().out == found["text"] + "\n"


def test_compare_is_stored_shown_exported_and_deleted(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    line = ["compare", "--vary", "batching=continuous,continuous", "--workload", "equal", "--requests", "2"]
    assert run([*line, "--repeats", "2", "--json", "--report", str(report), *tiny_settings]) == 0
    result = one_object(capsys.readouterr().out)
    assert len(result["curves"]) == 5 and result["repeats"] == 2
    assert result["run_id"] in report.read_text()
    run_id = result["run_id"]

    assert run(["runs", "--json"]) == 0
    assert [item["id"] for item in one_object(capsys.readouterr().out)["runs"]] == [run_id]
    assert run(["runs", "show", run_id, "--json"]) == 0
    assert one_object(capsys.readouterr().out)["result"] == result
    assert run(["runs", "show", run_id]) == 0
    assert "throughput" in capsys.readouterr().out
    assert run(["runs", "export", run_id, "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").stat().st_size > 1000
    assert run(["runs", "delete", run_id]) == 0
    assert Store().list_runs() == []


@pytest.mark.usefixtures("worker_here")
def test_bench_prints_metrics_with_the_contracts_keys(
    tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "--workload", "equal", "--requests", "2", "--slo", "ttft_p95=60", "--json"]
    assert run([*line, *tiny_settings]) == 0
    result = one_object(capsys.readouterr().out)
    assert {"ttft_s", "itl_s", "output_tokens_per_s", "memory", "cost_per_request", "provenance"} <= result.keys()
    assert result["completed"] == 2 and result["slo_attainment"] == 1.0


@pytest.mark.usefixtures("worker_here")
@pytest.mark.parametrize("workload", ["long-tail", "shared-prefix"])
def test_bench_runs_the_workloads_that_press_on_memory(
    workload: str, tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rate = ["--rate", "50"] if workload == "shared-prefix" else []
    line = ["bench", "--workload", workload, "--requests", "2", *rate, *tiny_settings]
    assert run([*line, "--json"]) == 0
    result = one_object(capsys.readouterr().out)
    assert result["completed"] == 2
    assert {"kv_waste", "slots", "concurrency", "prefix", "unexplained_share"} <= result.keys()
    assert run(["runs", "show", result["run_id"]]) == 0
    assert "KV wasted, share of the pool" in capsys.readouterr().out

    trace = ["runs", "trace", result["run_id"]]
    assert run([*trace]) == 0
    record = one_object(capsys.readouterr().out)
    assert record["workload"]["name"] == workload and "kv_events" in record["steps"][0]
    assert run([*trace, "--format", "chrome", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["traceEvents"]
    out = tmp_path / "trace.json"
    assert run([*trace, "--format", "chrome", "--out", str(out), "--json"]) == 0
    assert one_object(capsys.readouterr().out)["file"] == str(out)
    assert json.loads(out.read_text())["traceEvents"]
    assert run(["runs", "replay", result["run_id"], "--json"]) == 0
    replayed = one_object(capsys.readouterr().out)
    assert (replayed["steps"], replayed["difference"]) == (len(record["steps"]), None)
    for wrong, named in (
        (["--arm", "1"], "--arm"),
        (["--repeat", "2"], "--repeat"),
        (["--format", "svg"], "--format"),
        (["--out", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
    ):
        assert run([*trace, *wrong]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1 and named in captured.err


def test_the_help_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    from experiments.cli import options
    from experiments.workloads import WORKLOADS

    text = options.Workload.__metadata__[0].help
    assert all(name in text for name in WORKLOADS)


def test_a_run_without_records_has_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    run_id = Store().create_run("compare", {})
    assert run(["runs", "trace", run_id]) == 2
    assert run(["runs", "trace", "nope"]) == 2
    assert "a run with a finished repeat" in capsys.readouterr().err


@pytest.mark.usefixtures("worker_here")
def test_what_is_held_because_of_a_value_is_printed(
    tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["compare", "--vary", "kv_layout=contiguous,paged", "--workload", "equal", "--requests", "2", "--repeats"]
    assert run([*line, "1", *tiny_settings]) == 0
    assert "held because kv_layout=contiguous needs it: prefix_cache=off" in capsys.readouterr().out
    assert run([*line, "1", *tiny_settings, "--set", "prefix_cache=on"]) == 2
    assert "kv_layout=contiguous needs prefix_cache=off" in capsys.readouterr().err


def test_what_the_worker_refuses_keeps_its_exit_code(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", f"model={tmp_path}"]
    assert run(["bench", "--requests", "2", *settings, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("trilemma: model")


@pytest.mark.usefixtures("worker_here")
def test_a_comparison_that_was_stopped_is_gone_on_with(
    tiny_settings: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["compare", "--vary", "batching=static,continuous", "--workload", "equal", "--requests", "2"]
    assert run([*line, "--repeats", "1", *tiny_settings]) == 0
    store = Store()
    (stored,) = store.list_runs()
    assert f"trilemma compare --resume {stored.id}" in capsys.readouterr().err
    assert run(["compare", "--resume", stored.id]) == 2  # it is done
    capsys.readouterr()
    kept = store.record(stored.id, 0, 1)
    store.update_run(stored.id, state="failed", error="the engine process ended (SIGKILL)", result=None)
    assert run(["compare", "--resume", stored.id, "--repeats", "3"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(["compare", "--resume", stored.id, "--json"]) == 0
    result = one_object(capsys.readouterr().out)
    assert result["repeats"] == 1 and not result["cancelled"] and store.record(stored.id, 0, 1) == kept


@pytest.mark.usefixtures("worker_here")
def test_a_cancelled_comparison_prints_what_its_pairs_say(
    tiny_settings: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments import arms

    measured = arms.Arms.run

    def until_the_second_pair(self: Any, arm: int, repeat: int) -> None:
        if repeat == 2:
            raise arms.Cancelled
        measured(self, arm, repeat)

    monkeypatch.setattr(arms.Arms, "run", until_the_second_pair)
    line = ["compare", "--vary", "batching=static,continuous", "--workload", "equal", "--requests", "2"]
    assert run([*line, *tiny_settings]) == 130
    out, err = capsys.readouterr()
    assert "1 finished pairs say" in err and "--resume" in err and "inconclusive" in out


def test_ctrl_c_cancels_the_job(tiny_settings: list[str], home: Path) -> None:
    command = [sys.executable, "-m", "experiments.cli", "compare", "--vary", "batching=static,continuous",
               "--requests", "200", "--rate", "1", *tiny_settings, "--json"]  # fmt: skip
    # A shell's background jobs ignore SIGINT and hand that down: a terminal's foreground does not.
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list((home / "live").glob("*.json")):
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130 and out == ""
    assert "Traceback" not in err
    (stored,) = Store().list_runs()
    assert stored.state == "cancelled" and stored.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(stored.pid, 0)


@pytest.mark.parametrize("module", ["typer", "experiments.cli.verbs", "experiments.cli.serve"])
def test_ctrl_c_while_the_command_line_is_imported_ends_it_quietly(module: str) -> None:
    pressed = f"""
import sys
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from experiments.cli import main
main(["--version"])
"""
    done = subprocess.run([sys.executable, "-c", pressed], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotRunError, match=f"port {port}"):
            require_free_port(port)
        assert run(["ui", "--port", str(port)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_help_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run(["compare", "--help"]) == 0
    assert "--vary" in capsys.readouterr().out


@pytest.mark.usefixtures("worker_here")
def test_a_claims_figures_are_readable_lines_with_both_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "run", "C45"]) == 0
    out = capsys.readouterr().out
    assert "KV cache, 8 KV heads, fp16, sequences 1: 17,179,869,184 B (17.18 GB, 16.00 GiB) (computed)\n" in out


def test_a_page_that_is_terminated_takes_its_server_along(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "experiments.cli", "ui", "--port", str(port), "--json"]
    page = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert page.stdout is not None
    served = json.loads(
        page.stdout.readline() + page.stdout.readline() + page.stdout.readline() + page.stdout.readline()
    )
    page.terminate()
    assert page.wait(timeout=30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(served["pid"], 0)
    require_free_port(port)


def test_a_claim_is_told_in_chinese_and_its_json_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "run", "C04", "--lang", "zh"]) == 0
    said = capsys.readouterr().out
    assert "有条件地成立" in said and "陷阱：" in said and "819,200" in said
    assert run(["claims", "run", "C04", "--lang", "zh", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["verdict"] == "holds with a limit"
    assert run(["claims", "--lang", "zh"]) == 0
    assert "论断" in capsys.readouterr().out
    assert run(["claims", "--lang", "fr"]) == 2
