"""The process that runs one job: `python -m experiments.worker RUN_ID [--store PATH]`. Started by experiments.jobs.

Owns the way from a queued run to its end in the store, the live file and the exit code: 0 done or cancelled, 2 the
input is wrong, 3 it cannot run here, 1 a fault of ours. What a job computes is in kinds.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.kinds import kind_of
from experiments.lanes import lanes_of, turn
from experiments.loadgen import Cancelled
from experiments.processes import owner_is_gone, process_started
from experiments.store import Run, Store
from experiments.store.identity import identity
from ledger.errors import OUT_OF_MEMORY, CannotRunError, InputError, is_out_of_memory

CANCEL_POLL_S = 0.25
OWNER_GONE = "the command line that started it has ended"

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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(live, separators=(",", ":")), "utf-8")
            beside.replace(self._path)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


class CancelCheck:
    """Whether to stop: asked by the store or by SIGTERM, or because the command line that follows the run has died.

    The store is asked at most 4 times a second. `reason`: why, where nobody asked.
    """

    def __init__(self, store: Store, run_id: str, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._run_id = run_id
        self._now = now
        self._asked_at = float("-inf")
        self._cancelled = False
        self.reason: str | None = None

    def cancel(self, *_: Any) -> None:
        """Cancel now; also usable as a signal handler."""
        self._cancelled = True

    def __call__(self) -> bool:
        if not self._cancelled and self._now() - self._asked_at >= CANCEL_POLL_S:
            self._asked_at = self._now()
            try:
                run = self._store.get_run(self._run_id)
            except CannotRunError:  # locked, or the disk is full: no reason to end a run; asked again soon
                return False
            self._cancelled = run.cancel_requested
            if owner_is_gone(run) and not run.cancel_requested:
                self._cancelled, self.reason = True, OWNER_GONE
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
    run = store.get_run(run_id)
    lanes = lanes_of(run.spec)
    mine: dict[str, Any] = {"pid": os.getpid(), "pid_started": process_started(), "lanes": list(lanes)}
    store.update_run(run_id, **mine, **_identity(run))
    try:
        with turn(run, store, lanes, check):
            if not store.update_run(run_id, only_if_state="queued", state="running"):
                return 0
            with suppress(CannotRunError):
                store.sweep()
            return _run_to_end(store.get_run(run_id), store, execute, check)
    except Cancelled:
        store.update_run(run_id, only_if_state="queued", state="cancelled", error=check.reason)
        return 0


def _identity(run: Run) -> dict[str, Any]:
    """What this process computes with; a run that goes on with other code was computed by both."""
    mine = identity(run.spec)
    codes = run.code.split("+") if run.code else []
    return {**mine, "code": "+".join(dict.fromkeys([*codes, mine["code"]]))}


def _run_to_end(run: Run, store: Store, execute: Execute, check: CancelCheck) -> int:
    def end(state: str, code: int, **fields: Any) -> int:
        store.update_run(run.id, only_if_state="running", state=state, **fields)
        return code

    try:
        result = execute(run, store, LiveFile(live_path(store, run.id)).write, check)
        return end("done", 0, result=result)
    except Cancelled as cancelled:
        return end("cancelled", 0, result=cancelled.result, error=check.reason)
    except InputError as error:
        return end("failed", 2, error=str(error))
    except CannotRunError as error:
        _log(str(error))  # the store may be what failed; then the log still has the line
        return end("failed", 3, error=str(error))
    except Exception as error:
        if is_out_of_memory(error):
            error.__traceback__ = None  # its frames hold what was allocated, and the end must be stored
        else:
            _log(traceback.format_exc())
            where = log_path(store, run.id)
            return end("failed", 1, error=f"a fault of ours: {type(error).__name__}: {error}; log: {where}")
    gc.collect()
    _log(OUT_OF_MEMORY)
    return end("failed", 3, error=OUT_OF_MEMORY)


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
