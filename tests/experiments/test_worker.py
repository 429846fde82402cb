"""The worker's own rules, in this process with a stand-in for the measuring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments.compare import ComparisonCancelled
from experiments.lanes import lock_path, open_lock, try_lock
from experiments.loadgen import Cancelled
from experiments.store import Store
from experiments.store.identity import code_hash, code_version, environment
from experiments.worker import OWNER_GONE, CancelCheck, LiveFile, live_path, main, work
from ledger.errors import OUT_OF_MEMORY, CannotRunError, InputError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def raising(error: BaseException) -> Any:
    def execute(*_: Any) -> dict[str, Any]:
        raise error

    return execute


def test_a_result_makes_the_run_done(store: Store) -> None:
    run_id = store.create_run("bench", {})

    def execute(run: Any, _: Store, on_live: Any, should_cancel: Any) -> dict[str, Any]:
        assert store.get_run(run.id).state == "running" and not should_cancel()
        on_live({"phase": "running"})
        return {"x": 1}

    assert work(run_id, store, execute) == 0
    assert (store.get_run(run_id).state, store.get_run(run_id).result) == ("done", {"x": 1})
    assert json.loads(live_path(store, run_id).read_text()) == {"phase": "running"}
    assert work(run_id, store, raising(AssertionError())) == 0, "a run is not run twice"


@pytest.mark.parametrize(
    ("error", "code", "state", "line"),
    [
        (InputError("a", 1, "b"), 2, "failed", "a: 1 is not accepted; accepted: b"),
        (CannotRunError("no disk"), 3, "failed", "no disk"),
        (MemoryError(), 3, "failed", OUT_OF_MEMORY),
        (Cancelled(), 0, "cancelled", None),
    ],
)
def test_each_way_to_fail_has_its_line_and_exit_code(
    store: Store, error: BaseException, code: int, state: str, line: str | None
) -> None:
    run_id = store.create_run("bench", {})
    assert work(run_id, store, raising(error)) == code
    assert (store.get_run(run_id).state, store.get_run(run_id).error) == (state, line)


def test_a_fault_of_ours_names_the_log(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = store.create_run("bench", {})
    assert work(run_id, store, raising(ZeroDivisionError("x"))) == 1
    error = store.get_run(run_id).error
    assert error is not None and error.startswith("a fault of ours: ZeroDivisionError: x; log: ")
    assert "Traceback" in capsys.readouterr().err


def test_a_cancelled_comparison_keeps_its_partial_result(store: Store) -> None:
    run_id = store.create_run("compare", {})
    work(run_id, store, raising(ComparisonCancelled({"repeats": 2})))
    assert store.get_run(run_id).result == {"repeats": 2}


def test_a_store_that_fills_up_leaves_the_line_in_the_log(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run("bench", {})

    def execute(*_: Any) -> dict[str, Any]:
        def full(*_: Any, **__: Any) -> bool:
            raise CannotRunError("the disk is full")

        monkeypatch.setattr(Store, "update_run", full)
        raise CannotRunError("the disk is full")

    monkeypatch.setattr("experiments.worker.execute", execute)
    with pytest.raises(CannotRunError):
        work(run_id, store, execute)
    assert "the disk is full" in capsys.readouterr().err
    assert store.get_run(run_id).state == "running", "the store is as it was; whoever looks finds the process gone"


def test_main_gives_one_line_for_an_unknown_run(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nope", "--store", str(store.path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_cancelled_while_it_waits_never_begins(store: Store) -> None:
    run_id = store.create_run("bench", {"settings": {"device": "cpu"}})
    store.update_run(run_id, cancel_requested=True)
    with open_lock(lock_path(store, "cpu")) as file:
        assert try_lock(file)
        assert work(run_id, store, raising(AssertionError())) == 0
    assert store.get_run(run_id).state == "cancelled"


def test_a_run_ends_with_the_command_line_that_follows_it(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    run_id = store.create_run("bench", {}, owner_pid=child.pid, owner_started=started)

    def execute(run: Any, _: Store, on_live: Any, should_cancel: Any) -> dict[str, Any]:
        assert should_cancel()
        raise Cancelled

    assert work(run_id, store, execute) == 0
    assert (store.get_run(run_id).state, store.get_run(run_id).error) == ("cancelled", OWNER_GONE)


def test_a_run_goes_on_while_its_command_line_lives(store: Store) -> None:
    mine = psutil.Process()
    run_id = store.create_run("bench", {}, owner_pid=mine.pid, owner_started=mine.create_time())
    assert not CancelCheck(store, run_id)()


def test_a_run_knows_what_it_was_computed_with(store: Store) -> None:
    run_id = store.create_run("bench", {"settings": {}})
    assert work(run_id, store, lambda *_: {"x": 1}) == 0
    run = store.get_run(run_id)
    assert run.code == code_hash() and run.version == code_version() and run.environment == environment(run.spec)
    assert [one.id for one in store.find("bench", run.spec_hash, run.code, run.environment)] == [run_id]


def test_a_run_that_goes_on_with_other_code_has_both(store: Store) -> None:
    run_id = store.create_run("bench", {}, code="0123")
    assert work(run_id, store, lambda *_: {}) == 0
    assert store.get_run(run_id).code == f"0123+{code_hash()}"
    assert store.find("bench", code=code_hash()) == store.find("bench", code="0123") == []


def test_the_store_is_asked_for_a_cancel_at_most_four_times_a_second(store: Store) -> None:
    run_id = store.create_run("bench", {})
    now = [0.0]
    check = CancelCheck(store, run_id, now=lambda: now[0])
    assert not check()
    store.update_run(run_id, cancel_requested=True)
    now[0] = 0.2
    assert not check()
    now[0] = 0.3
    assert check()


def test_a_live_file_is_replaced_whole_and_a_full_disk_costs_only_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "live" / "a.json"
    LiveFile(path).write({"a": 1})
    LiveFile(path).write({"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    LiveFile(blocked / "a.json").write({"a": 1})
