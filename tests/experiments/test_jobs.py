"""Jobs in their own process: the whole way with a tiny model, and every way a process can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments import jobs, processes
from experiments.store import Run, Store
from experiments.worker import live_path, log_path
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import make_llama

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with a byte tokenizer."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "runs.sqlite3")


def spec_of(model: Path, **changes: Any) -> dict[str, Any]:
    settings = {"model": str(model), "dtype": "fp32", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}
    fast = {"workload": "equal", "num_requests": 3, "max_tokens_cap": 4, "repeats": 2, "settings": settings}
    return {"variable": "batching", "values": ["static", "continuous"], **fast, **changes}


def slow_spec(model: Path) -> dict[str, Any]:
    """Requests a second apart: a run of minutes on any machine."""
    return spec_of(model, workload="mixed", num_requests=100, rate_rps=1.0)


def until(condition: Callable[[], Any]) -> Any:
    """The first true value of `condition`; fails after two minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def measuring(run_id: str, store: Store) -> Callable[[], bool]:
    def look() -> bool:
        run = jobs.status(run_id, store)
        assert run.state in jobs.ACTIVE, run.error
        return (jobs.live(run_id, store) or {}).get("phase") == "running"

    return look


def test_a_comparison_runs_to_its_end_in_another_process(model: Path, store: Store) -> None:
    run_id = jobs.start("compare", spec_of(model), store)
    run = jobs.wait(run_id, store)
    assert (run.state, run.error) == ("done", None)
    assert run.result is not None and run.result["run_id"] == run_id and run.result["repeats"] == 2
    assert run.pid not in (None, os.getpid()) and jobs.exit_code(run_id) == 0
    assert [(item.arm, item.repeat) for item in store.records(run_id)] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert (jobs.live(run_id, store) or {})["phase"] == "done"
    assert run.result["quality"]["same_token_ids_share"] is not None


def test_a_killed_process_makes_the_job_failed_and_everything_else_lives_on(model: Path, store: Store) -> None:
    run_id = jobs.start("compare", slow_spec(model), store)
    until(measuring(run_id, store))
    pid = store.get_run(run_id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    run = until(lambda: (found := jobs.status(run_id, store)).state == "failed" and found)
    assert run.error == "the engine process ended (SIGKILL)"
    assert not psutil.pid_exists(pid), "a zombie is left"
    again = jobs.restart(run_id, store)
    assert again != run_id and store.get_run(again).spec == run.spec
    jobs.cancel(again, store)
    assert jobs.wait(again, store).state == "cancelled"


def test_cancelling_ends_a_run_within_seconds(model: Path, store: Store) -> None:
    run_id = jobs.start("compare", slow_spec(model), store)
    until(measuring(run_id, store))
    asked = time.monotonic()
    jobs.cancel(run_id, store)
    run = jobs.wait(run_id, store)
    assert (run.state, run.result) == ("cancelled", None)
    assert time.monotonic() - asked < 10
    assert jobs.exit_code(run_id) == 0


def test_two_jobs_never_measure_at_once(model: Path, store: Store) -> None:
    first = jobs.start("compare", slow_spec(model), store)
    until(measuring(first, store))
    bench = {"workload": "equal", "num_requests": 2, "settings": spec_of(model)["settings"]}
    second = jobs.start("bench", bench, store)
    time.sleep(1.0)
    assert jobs.status(second, store).state == "queued"
    jobs.cancel(first, store)
    run = jobs.wait(second, store)
    assert run.state == "done" and run.result is not None and run.result["completed"] == 2


def test_what_the_engine_refuses_comes_back_as_one_line_with_its_exit_code(tmp_path: Path, store: Store) -> None:
    run_id = jobs.start("bench", {"settings": {"model": str(tmp_path / "nowhere")}}, store)
    run = jobs.wait(run_id, store)
    assert run.state == "failed" and run.error is not None
    assert run.error.startswith("model: ") and "\n" not in run.error
    assert jobs.exit_code(run_id) == 2


def test_a_wrong_spec_starts_nothing(store: Store) -> None:
    with pytest.raises(InputError):
        jobs.start("compare", {"variable": "nope", "values": [1, 2]}, store)
    with pytest.raises(InputError):
        jobs.start("claim", {"claim": "C99"}, store)
    assert store.list_runs() == []


def stored(store: Store, **fields: Any) -> str:
    run_id = store.create_run("bench", {"workload": "equal"})
    store.update_run(run_id, **fields)
    return run_id


def test_a_run_of_a_process_that_is_gone_is_failed(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    run_id = stored(store, state="running", pid=child.pid, pid_started=time.time())
    assert jobs.status(run_id, store).error == "the engine process ended"


def test_a_zombie_counts_as_gone(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(child.pid).create_time()
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    run_id = stored(store, state="running", pid=child.pid, pid_started=started)
    assert jobs.status(run_id, store).state == "failed"
    child.wait()


def test_looking_at_any_run_collects_the_workers_that_have_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    monkeypatch.setitem(jobs._children, stored(store, state="done"), child)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    jobs.status(stored(store, state="done"), store)
    assert not psutil.pid_exists(child.pid)


def test_a_pid_that_was_used_again_is_not_the_worker(store: Store) -> None:
    mine = psutil.Process()
    same = stored(store, state="running", pid=mine.pid, pid_started=mine.create_time())
    assert jobs.status(same, store).state == "running"
    older = mine.create_time() - 1000
    assert jobs.status(stored(store, state="running", pid=mine.pid, pid_started=older), store).state == "failed"


def test_a_run_that_never_got_a_process_fails_after_a_minute(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = store.create_run("bench", {})
    assert jobs.status(run_id, store).state == "queued"
    monkeypatch.setattr(processes, "START_GRACE_S", -1.0)
    assert jobs.status(run_id, store).state == "failed"


def test_an_ended_run_is_never_touched(store: Store) -> None:
    run_id = stored(store, state="done", pid=2**22 + 1, pid_started=0.0, result={"x": 1})
    jobs.cancel(run_id, store)
    run = jobs.status(run_id, store)
    assert (run.state, run.cancel_requested, run.result) == ("done", False, {"x": 1})


def test_a_full_disk_still_shows_that_the_process_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = stored(store, state="running", pid=2**22 + 1, pid_started=0.0)

    def full(*_: Any, **__: Any) -> bool:
        raise CannotRunError("the disk is full")

    monkeypatch.setattr(store, "update_run", full)
    assert jobs.status(run_id, store).state == "failed"
    assert store.get_run(run_id).state == "running"


@pytest.mark.parametrize(("kills", "said"), [((3, 3), ""), ((3, 4), ": the system ran out of memory"), ((None, 4), "")])
def test_a_kill_for_want_of_memory_is_told_from_another(
    store: Store, monkeypatch: pytest.MonkeyPatch, kills: tuple[int | None, int], said: str
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
    child.wait()
    run_id = stored(store, state="running", pid=child.pid, pid_started=0.0)
    monkeypatch.setitem(jobs._children, run_id, child)
    monkeypatch.setitem(jobs._oom_kills_before, run_id, kills[0])
    monkeypatch.setattr(jobs, "oom_kills", lambda: kills[1])
    assert jobs.status(run_id, store).error == f"the engine process ended (SIGKILL){said}"


@pytest.mark.parametrize(("log", "error"), [("", "can't be written"), ("x\nthe disk is full\n", "the disk is full")])
def test_a_worker_that_could_not_store_its_end_is_explained(
    store: Store, monkeypatch: pytest.MonkeyPatch, log: str, error: str
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    run_id = stored(store, state="running", pid=child.pid, pid_started=time.time())
    log_path(store, run_id).parent.mkdir()
    log_path(store, run_id).write_text(log)
    monkeypatch.setitem(jobs._children, run_id, child)
    child.wait()
    assert error in (jobs.status(run_id, store).error or "")


def test_deleting_a_run_takes_its_files_and_refuses_a_running_one(store: Store) -> None:
    mine = psutil.Process()
    busy = stored(store, state="running", pid=mine.pid, pid_started=mine.create_time())
    with pytest.raises(InputError):
        jobs.delete(busy, store)
    run_id = stored(store, state="done")
    for path in (live_path(store, run_id), log_path(store, run_id)):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    jobs.delete(run_id, store)
    assert not live_path(store, run_id).exists() and not log_path(store, run_id).exists()
    with pytest.raises(InputError):
        store.get_run(run_id)


def test_the_age_of_a_run_is_counted_in_utc() -> None:
    made = (datetime.now(UTC) - timedelta(seconds=90)).isoformat(timespec="milliseconds")
    assert 89 < processes.age_s(Run("x", "bench", "queued", made, made, {})) < 95
