"""The process that runs one job: `python -m experiments.worker RUN_ID [--store PATH]`. Started by experiments.jobs.

Owns the way from a queued run to its end in the store, the live file and the exit code: 0 done or cancelled, 2 the
input is wrong, 3 it cannot run here, 1 a fault of ours. What a job computes is in kinds.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from experiments.kinds import kind_of
from experiments.loadgen import Cancelled
from experiments.store import Run, Store
from experiments.within import process_started
from ledger.errors import CannotRunError, InputError

CANCEL_POLL_S = 0.25
LOCK_POLL_S = 0.2

Execute = Callable[[Run, Store, Callable[[dict[str, Any]], None], Callable[[], bool]], dict[str, Any]]


def live_path(store: Store, run_id: str) -> Path:
    """The file of the live object of a run."""
    return store.path.parent / "live" / f"{run_id}.json"


def log_path(store: Store, run_id: str) -> Path:
    """What the worker of a run printed."""
    return store.path.parent / "logs" / f"{run_id}.log"


class LiveFile:
    """The live object on disk. Readers never see a half-written one: it is written beside and renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, live: dict[str, Any]) -> None:
        """Replace the file. A disk that is full costs the picture, not the run."""
        beside = self._path.with_suffix(".tmp")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(live, separators=(",", ":")), "utf-8")
            beside.replace(self._path)


class CancelCheck:
    """Whether the user asked to stop, by the store or by SIGTERM; the store is asked at most 4 times a second."""

    def __init__(self, store: Store, run_id: str, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._run_id = run_id
        self._now = now
        self._asked_at = float("-inf")
        self._cancelled = False

    def cancel(self, *_: Any) -> None:
        """Cancel now; also usable as a signal handler."""
        self._cancelled = True

    def __call__(self) -> bool:
        if not self._cancelled and self._now() - self._asked_at >= CANCEL_POLL_S:
            self._asked_at = self._now()
            self._cancelled = self._store.get_run(self._run_id).cancel_requested
        return self._cancelled


def execute(
    run: Run, store: Store, on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> dict[str, Any]:
    """Compute the result of a run of any kind."""
    return kind_of(run.kind).run(run, store, on_live, should_cancel)


def work(run_id: str, store: Store, execute: Execute = execute) -> int:
    """Run a queued job to its end and return the exit code; see the module."""
    check = CancelCheck(store, run_id)
    with suppress(ValueError):  # not in the main thread: then only the store can cancel
        signal.signal(signal.SIGTERM, check.cancel)
    store.update_run(run_id, pid=os.getpid(), pid_started=process_started())
    try:
        with one_at_a_time(store.path.parent / "engine.lock", check):
            if not store.update_run(run_id, only_if_state="queued", state="running"):
                return 0
            return _run_to_end(store.get_run(run_id), store, execute, check)
    except Cancelled:
        store.update_run(run_id, only_if_state="queued", state="cancelled")
        return 0


@contextmanager
def one_at_a_time(path: Path, should_cancel: Callable[[], bool]) -> Iterator[None]:
    """Wait until no other job of this store computes: two at once would measure each other.

    The lock is the operating system's and goes with the process, however it ends. Cancelled while waiting when asked.
    """
    with open_lock(path) as file:
        while not try_lock(file):
            if should_cancel():
                raise Cancelled
            time.sleep(LOCK_POLL_S)
        yield


def open_lock(path: Path) -> IO[str]:
    """The lock file; CannotRunError when it can't be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise CannotRunError(f"cannot write {path}: {error.strerror}") from None


def try_lock(file: IO[str]) -> bool:
    """Take the lock if it is free. Systems without flock run jobs side by side."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _run_to_end(run: Run, store: Store, execute: Execute, check: CancelCheck) -> int:
    def end(state: str, code: int, **fields: Any) -> int:
        store.update_run(run.id, only_if_state="running", state=state, **fields)
        return code

    try:
        result = execute(run, store, LiveFile(live_path(store, run.id)).write, check)
        return end("done", 0, result=result)
    except Cancelled as cancelled:
        return end("cancelled", 0, result=cancelled.result)
    except InputError as error:
        return end("failed", 2, error=str(error))
    except (CannotRunError, MemoryError) as error:
        line = str(error) if isinstance(error, CannotRunError) else "memory: the machine has too little for this run"
        _log(line)  # the store may be what failed; then the log still has the line
        return end("failed", 3, error=line)
    except Exception as error:
        _log(traceback.format_exc())
        where = log_path(store, run.id)
        return end("failed", 1, error=f"a fault of ours: {type(error).__name__}: {error}; log: {where}")


def _log(text: str) -> None:
    """Write to stderr, which is the log file. On a full disk that fails too, and the exit code must still be right."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the job named on the command line."""
    parser = argparse.ArgumentParser(prog="experiments.worker", description="Run one job of the run store.")
    parser.add_argument("run_id")
    parser.add_argument("--store", type=Path, default=None)
    options = parser.parse_args(argv)
    try:
        return work(options.run_id, Store(options.store))
    except (InputError, CannotRunError) as error:
        _log(str(error))
        return 2 if isinstance(error, InputError) else 3


if __name__ == "__main__":
    sys.exit(main())
