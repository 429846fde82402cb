"""Who computes when: lanes of a spec, first come first served, and what a killed waiter leaves."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments import lanes
from experiments.lanes import lanes_of, lock_path, open_lock, try_lock, turn
from experiments.loadgen import Cancelled
from experiments.store import Store

PATIENCE_S = 60.0
CPU = {"settings": {"device": "cpu"}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "POLL_S", 0.01)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Another living process."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def waiting(store: Store, spec: Any, pid: int | None = None, on: tuple[str, ...] | None = ("cpu",)) -> str:
    """A queued run of a process (this one by default)."""
    process = psutil.Process(pid)
    fields: dict[str, Any] = {"pid": process.pid, "pid_started": process.create_time()}
    return store.create_run("bench", spec, lanes=None if on is None else list(on), **fields)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"settings": {"device": "cpu"}}, ("cpu",)),
        ({"settings": {"device": "cuda"}}, ("cuda:0",)),
        ({"variable": "device", "values": ["cpu", "cuda"], "settings": {}}, ("cpu", "cuda:0")),
        ({"factors": [["device", ["cuda", "cpu"]], ["block_size", [16, 32]]]}, ("cpu", "cuda:0")),
        ({"vary": ["device", ["cuda", "cpu"]], "settings": {}}, ("cpu", "cuda:0")),
        ({"arms": [{"device": "cuda"}, {"device": "cpu"}]}, ("cpu", "cuda:0")),
        ({"claim": "C10", "options": {"settings": {"device": "cpu"}}}, ("cpu",)),
        ({"endpoint": "http://127.0.0.1:8000/v1"}, ()),
        ({"endpoints": {"A": "http://a", "B": "http://b"}, "settings": {"device": "cpu"}}, ()),
        ({"target": "simulator", "settings": {}}, ()),
        ({"target": {"kind": "endpoint"}}, ()),
        ({"target": "engine", "settings": {"device": "cpu"}}, ("cpu",)),
    ],
)
def test_a_spec_names_the_devices_that_it_computes_on(
    spec: Any, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert lanes_of(spec) == expected


@pytest.mark.parametrize(("here", "lane"), [(True, "cuda:3"), (False, "cpu")])
def test_auto_is_the_first_visible_card_or_the_processor(
    here: bool, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    monkeypatch.setattr(lanes, "cuda_is_here", lambda: here)
    assert lanes_of({}) == lanes_of({"settings": {"device": "auto"}}) == (lane,)


def test_runs_begin_in_the_order_in_which_they_were_queued(store: Store) -> None:
    ids = [waiting(store, CPU) for _ in range(5)]
    begun: list[str] = []

    def run(run_id: str) -> None:
        with turn(store.get_run(run_id), store, ("cpu",), lambda: False):
            store.update_run(run_id, state="running")
            begun.append(run_id)
            time.sleep(0.02)
        store.update_run(run_id, state="done")

    threads = [threading.Thread(target=run, args=(run_id,)) for run_id in reversed(ids)]
    for thread in threads:
        thread.start()
        time.sleep(0.03)  # the last one queued asks first
    for thread in threads:
        thread.join(PATIENCE_S)
    assert begun == ids


def test_a_waiter_that_was_killed_is_passed_over(store: Store, sleeper: subprocess.Popen[bytes]) -> None:
    waiting(store, CPU, sleeper.pid)
    mine = store.get_run(waiting(store, CPU))
    with pytest.raises(Cancelled), turn(mine, store, ("cpu",), lambda: True):
        raise AssertionError("a living one is ahead")
    sleeper.kill()
    sleeper.wait()
    with turn(mine, store, ("cpu",), lambda: True):
        pass


def test_one_that_has_not_said_its_lanes_is_waited_for_and_one_of_another_device_is_not(store: Store) -> None:
    other = waiting(store, CPU, on=("cuda:0",))
    mine = store.get_run(waiting(store, CPU))
    with turn(mine, store, ("cpu",), lambda: True):
        pass
    store.update_run(other, lanes=None)
    with pytest.raises(Cancelled), turn(mine, store, ("cpu",), lambda: True):
        raise AssertionError("it may want this lane")


def test_a_run_of_an_endpoint_waits_for_nobody(store: Store) -> None:
    waiting(store, CPU)
    mine = store.get_run(waiting(store, {"endpoint": "http://x"}, on=()))
    with open_lock(lock_path(store, "cpu")) as file:
        assert try_lock(file)
        with turn(mine, store, (), lambda: True):
            pass


def test_a_device_has_a_lock_of_its_own_and_both_are_taken_or_none(store: Store) -> None:
    mine = store.get_run(waiting(store, CPU))
    with open_lock(lock_path(store, "cuda:0")) as other:
        assert try_lock(other)
        with turn(mine, store, ("cpu",), lambda: True):
            pass
        with pytest.raises(Cancelled), turn(mine, store, ("cpu", "cuda:0"), lambda: True):
            raise AssertionError("one of the two is held")
        with open_lock(lock_path(store, "cpu")) as free:
            assert try_lock(free)


def test_the_lock_is_free_again_after_its_holder(store: Store) -> None:
    mine = store.get_run(waiting(store, CPU))
    with turn(mine, store, ("cpu",), lambda: True), open_lock(lock_path(store, "cpu")) as other:
        assert not try_lock(other)
    with turn(mine, store, ("cpu",), lambda: True):
        pass


def test_a_lock_goes_with_a_killed_process(store: Store) -> None:
    code = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'a')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(True, flush=True)\ntime.sleep(600)\n"
    )
    path = lock_path(store, "cpu")
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"True\n"
    with open_lock(path) as mine:
        assert not try_lock(mine)
        child.kill()
        child.wait()
        assert try_lock(mine)


def test_a_run_that_is_queued_again_goes_to_the_end(store: Store) -> None:
    first, second = waiting(store, CPU), waiting(store, CPU)
    store.update_run(first, state="cancelled")
    store.update_run(first, state="queued")
    assert [run.id for run in store.ahead_of(first)] == [second]
    assert store.ahead_of(second) == []
