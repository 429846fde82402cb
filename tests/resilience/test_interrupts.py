"""Ctrl-C in every phase of every kind of command: exit code 130, what is finished kept, nothing left on the machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.cli.ui import require_free_port
from experiments.compare import kept_pairs
from experiments.lanes import lock_path, open_lock, try_lock
from experiments.server.run import bound_socket
from experiments.store import Run, Store
from tests.core_engine.conftest import make_llama
from tests.resilience.helpers import leaves_nothing, options_of, processes_of, trilemma, until

pytestmark = pytest.mark.slow

INTERRUPTED = 130
SLOW_LOAD = ("--requests", "200", "--rate", "1")  # minutes on any machine


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, max_position_embeddings=1024)
    return options_of(directory)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def nothing_left(home: Path) -> Iterator[None]:
    yield from leaves_nothing(home)


def stored(home: Path) -> list[Run]:
    path = home / "runs.sqlite3"
    return Store(path).list_runs() if path.exists() else []


def the_run(home: Path) -> Run:
    """The one run, as it is."""
    (run,) = stored(home)
    return jobs.status(run.id, Store(home / "runs.sqlite3"))


def phase(home: Path) -> str | None:
    """What the run's live object says it is doing."""
    runs = stored(home)
    return (jobs.live(runs[0].id, Store(home / "runs.sqlite3")) or {}).get("phase") if runs else None


def interrupted(command: subprocess.Popen[str], when: Callable[[], Any]) -> str:
    """Interrupt a command once `when` is true and wait for its end with 130; what it wrote to stderr."""
    until(lambda: when() or command.poll() is not None)
    assert command.poll() is None, command.communicate()
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=90)
    assert command.returncode == INTERRUPTED, err
    assert out == "" and "Traceback" not in err
    return err


@pytest.mark.parametrize("at", ["stored", "loading", "warmup", "running"])
def test_a_comparison(options: list[str], home: Path, at: str) -> None:
    command = trilemma("compare", "--vary", "batching=static,continuous", *SLOW_LOAD, *options, "--json", home=home)
    interrupted(command, lambda: stored(home) if at == "stored" else phase(home) == at)
    # As soon as a run is stored its command line may not wait for it yet: then it just ends, and so does the worker.
    assert until(lambda: (run := the_run(home)).state not in jobs.ACTIVE and run).state in ("cancelled", "failed")
    if at != "stored":
        assert the_run(home).state == "cancelled"


def test_a_comparison_that_is_scoring_quality_keeps_its_repeats(options: list[str], home: Path) -> None:
    vary = ("--vary", "kv_dtype=bf16,fp32", "--requests", "16", "--repeats", "2")
    command = trilemma("compare", *vary, *options, "--json", home=home)
    until(lambda: phase(home) in ("quality", "done") or command.poll() is not None)
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=90)
    run = the_run(home)
    assert command.returncode in (0, INTERRUPTED) and run.state in ("done", "cancelled")
    assert len(Store(home / "runs.sqlite3").record_keys(run.id)) == 4


def test_a_comparison_whose_engine_is_killed_goes_on_after_its_last_whole_pair(options: list[str], home: Path) -> None:
    vary = ("--vary", "max_num_seqs=2,4", "--requests", "24", "--repeats", "9")
    command = trilemma("compare", *vary, *options, "--json", home=home)
    store = Store(home / "runs.sqlite3")
    until(lambda: ((runs := stored(home)) and len(store.record_keys(runs[0].id)) >= 2) or command.poll() is not None)
    run = the_run(home)
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 1 and f"trilemma compare --resume {run.id} goes on from here" in err
    pairs = kept_pairs(store, run.id)
    out, _ = trilemma("compare", "--resume", run.id, "--json", home=home).communicate(timeout=120)
    assert pairs and json.loads(out)["repeats"] == 9
    assert {key: store.record(run.id, *key) for key in pairs} == pairs


def test_a_run_that_waits_for_its_turn(options: list[str], home: Path) -> None:
    store = Store(home / "runs.sqlite3")
    with open_lock(lock_path(store, "cpu")) as held:
        assert try_lock(held)
        command = trilemma("bench", "--requests", "2", *options, "--json", home=home)
        interrupted(command, lambda: (runs := stored(home)) and runs[0].lanes == ["cpu"])
    assert the_run(home).state == "cancelled"


def test_a_second_one_ends_the_worker_at_once(options: list[str], home: Path) -> None:
    command = trilemma("bench", *SLOW_LOAD, *options, "--json", home=home)
    until(lambda: phase(home) == "running")
    worker = the_run(home).pid
    assert worker is not None
    # The worker can't answer the first one, so that the second one comes in time.
    next(process for process in processes_of(home) if process.pid == worker).suspend()
    command.send_signal(signal.SIGINT)
    until(lambda: the_run(home).cancel_requested)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == INTERRUPTED and "Traceback" not in err
    assert the_run(home).error == "the engine process ended (SIGKILL)" or the_run(home).state == "failed"


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("sweep", ("--over", "max_num_seqs=1,2,4,8", "--requests", "24")),
        ("ladder", ("--workload", "equal", "--requests", "24", "--slo", "ttft_p95=5", "--repeats", "3")),
    ],
)
def test_between_steps_what_is_finished_is_kept_and_goes_on(
    options: list[str], home: Path, verb: str, more: tuple[str, ...]
) -> None:
    command = trilemma(verb, *more, *options, "--json", home=home)
    store = Store(home / "runs.sqlite3")

    def one_is_finished() -> bool:
        runs = stored(home)
        return bool(runs) and len(store.record_keys(runs[0].id)) >= 1

    said = interrupted(command, one_is_finished)
    run = the_run(home)
    before = store.record_keys(run.id)
    kept = {key: store.record(run.id, *key) for key in before}
    assert run.state == "cancelled" and f"--resume {run.id} goes on from here" in said
    again = trilemma(verb, "--resume", run.id, "--json", home=home)
    until(lambda: len(store.record_keys(run.id)) > len(before) or again.poll() is not None)
    assert {key: store.record(run.id, *key) for key in before} == kept, "nothing finished is measured again"
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=90)


def test_claims_between_checks(home: Path) -> None:
    command = trilemma("claims", "--all", "--quick", "--json", home=home)
    store = Store(home / "runs.sqlite3")
    interrupted(command, lambda: (runs := stored(home)) and len(store.record_keys(runs[-1].id)) >= 3)
    run = next(run for run in stored(home) if run.kind == "claims")
    assert run.state == "cancelled" and len(store.record_keys(run.id)) >= 3


def test_a_command_that_computes_in_its_own_process(options: list[str], home: Path) -> None:
    command = trilemma("calibrate", home=home)
    interrupted(command, lambda: _has_torch(command))
    assert not list(home.rglob("*.part"))


def _has_torch(command: subprocess.Popen[str]) -> bool:
    maps = Path(f"/proc/{command.pid}/maps")
    return "libtorch_cpu" in maps.read_text("utf-8", errors="replace")


def served(options: list[str], home: Path) -> tuple[subprocess.Popen[str], str]:
    server = trilemma("serve", "--port", "0", "--json", *options, home=home)
    assert server.stdout is not None and server.stderr is not None
    ready = ""
    while not ready.rstrip().endswith("}"):
        line = server.stdout.readline()
        assert line, server.stderr.read()
        ready += line
    return server, json.loads(ready)["url"]


def test_a_server_with_requests_under_way(options: list[str], home: Path) -> None:
    server, url = served(options, home)
    body = json.dumps({"prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        assert reply.readline().startswith(b"data: ")
        server.send_signal(signal.SIGINT)
        assert reply.read().endswith(b"data: [DONE]\n\n")
    _, err = server.communicate(timeout=60)
    assert server.returncode == INTERRUPTED and "Traceback" not in err and '"event": "stopped"' in err
    bound_socket("127.0.0.1", int(url.rsplit(":", 1)[1])).close()


def test_a_server_that_is_loading(options: list[str], home: Path) -> None:
    server = trilemma("serve", "--port", "0", "--json", *options, home=home)
    interrupted(server, lambda: _has_torch(server))


def page_at(home: Path) -> tuple[subprocess.Popen[str], int, dict[str, Any]]:
    """(the command line of a page that is served, its port, what it says of it)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = trilemma("ui", "--port", str(port), "--json", home=home)
    assert page.stdout is not None
    return page, port, json.loads("".join(page.stdout.readline() for _ in range(4)))


def test_a_page_whose_command_line_is_killed(home: Path) -> None:
    page, port, served_at = page_at(home)
    page.kill()
    page.communicate(timeout=30)
    until(lambda: served_at["pid"] not in [process.pid for process in processes_of(home)])
    require_free_port(port)


def test_a_page(home: Path) -> None:
    page, port, served_at = page_at(home)
    page.send_signal(signal.SIGINT)
    _, err = page.communicate(timeout=30)
    assert page.returncode == INTERRUPTED and "Traceback" not in err
    assert served_at["pid"] not in [process.pid for process in processes_of(home)]
    require_free_port(port)
