"""Jobs: starting, watching, cancelling and restarting the worker processes. Used by the page and the command line.

Owns the truth about a run whose process has died: the store says `running` until someone looks, and this module looks.
Knows nothing of what a job computes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.confined import require_allowed
from experiments.kinds import kind_of, resumable
from experiments.processes import is_at_work, oom_kills, process_started
from experiments.store import Run, Store
from experiments.threads import worker_environment
from experiments.worker import live_path, log_path
from experiments.yielding import start_process
from ledger.errors import CannotRunError, InputError

ENDED = "the engine process ended"
NO_MEMORY = "the system ran out of memory"
CANNOT_STORE = 3
ACTIVE = ("queued", "running")
# Children must be waited for or they stay as zombies, and only their Popen knows the exit status. By run id.
_children: dict[str, subprocess.Popen[bytes]] = {}
# What oom_kills said when the worker of a run began.
_oom_kills_before: dict[str, int | None] = {}


def start(
    kind: str, spec: Mapping[str, Any], store: Store, *, followed: bool = False, started_by: str | None = None
) -> str:
    """Validate a spec, store a run and start its worker; returns the run's id at once.

    followed: it ends with this process, however that ends (see `follow_only`), from its first moment on.
    started_by: the visitor of a page whose run it is (app/visitor.py); None where there is none.
    InputError for a wrong spec, CannotRunError when the run can't be stored or the process can't be started.
    """
    fields = {**_standing_in(), **(_owner() if followed else {}), "started_by": started_by}
    run_id = store.create_run(kind, checked_spec(kind, spec), **fields)
    _start_worker(run_id, store)
    return run_id


def resume(run_id: str, store: Store, kind: str | None = None, *, followed: bool = False) -> None:
    """Start a run of a resumable kind that was cancelled or failed again, as the same run; what it kept is taken.

    kind: the only one that is asked for; followed: as `start`. InputError for another kind of run, or one that runs or
    is done; CannotRunError as `start`.
    """
    run = status(run_id, store)
    accepted = resumable() if kind is None else {kind: resumable()[kind]}
    if run.kind not in accepted or run.state not in ("cancelled", "failed"):
        what = f"{' or '.join(accepted.values())} that was cancelled or failed"
        raise InputError("--resume", f"{run_id} ({run.kind}, {run.state})", what)
    checked_spec(run.kind, run.spec)
    _children.pop(run_id, None)
    again: dict[str, Any] = {"error": None, "result": None, "cancel_requested": False, "lanes": None}
    owner = _owner() if followed else {"owner_pid": None, "owner_started": None}
    store.update_run(run_id, state="queued", **again, **_standing_in(), **owner)
    _start_worker(run_id, store)


def _standing_in() -> dict[str, Any]:
    """This process stands for the worker until that has an id: a queued run of nobody would keep others waiting."""
    return {"pid": os.getpid(), "pid_started": process_started()}


def _start_worker(run_id: str, store: Store) -> None:
    _oom_kills_before[run_id] = oom_kills()
    try:
        child = _spawn(run_id, store)
    except OSError as error:
        line = f"the engine process can't be started: {error.strerror or error}"
        store.update_run(run_id, state="failed", error=line)
        raise CannotRunError(line) from None
    _children[run_id] = child
    with suppress(Exception):  # the worker states the same itself; it may have ended already
        store.update_run(run_id, pid=child.pid, pid_started=process_started(child.pid))


def checked_spec(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A complete, valid spec of a kind of run; InputError names the first field that is wrong, or may not be named."""
    require_allowed(spec)
    return kind_of(kind).check(spec)


def _spawn(run_id: str, store: Store) -> subprocess.Popen[bytes]:
    log = log_path(store, run_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with log.open("ab") as output:
        return start_process(
            [sys.executable, "-m", "experiments.worker", run_id, "--store", str(store.path.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**worker_environment(), "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C in the terminal is the command line's to handle, not the worker's
        )


def status(run_id: str, store: Store) -> Run:
    """The run as it really is: one whose process has died becomes failed, with "the engine process ended".

    InputError for an unknown id. A store that can't be written still gives the true state.
    """
    run = store.get_run(run_id)
    _collect()
    if run.state not in ACTIVE or _alive(run):
        return run
    error = _how_it_ended(run, store)
    try:
        # Only if the state is still what was read: the worker may have ended the run just before it exited.
        if store.update_run(run_id, only_if_state=run.state, state="failed", error=error):
            live_path(store, run_id).unlink(missing_ok=True)
        return store.get_run(run_id)
    except (CannotRunError, OSError):
        return replace(run, state="failed", error=error)


def _collect() -> None:
    """Take the exit status of every worker that has ended: one that stored its end itself would stay as a zombie."""
    for child in list(_children.values()):
        child.poll()


def _alive(run: Run) -> bool:
    child = _children.get(run.id)
    return is_at_work(run) if child is None else child.poll() is None


def _how_it_ended(run: Run, store: Store) -> str:
    code = exit_code(run.id)
    if code is None:
        return ENDED
    if code < 0:
        why = f": {NO_MEMORY}" if code == -signal.SIGKILL and _memory_ran_out(run.id) else ""
        with suppress(ValueError):
            return f"{ENDED} ({signal.Signals(-code).name}){why}"
    if code == CANNOT_STORE:
        # It ended in order but could not say so in the store; its log has the reason unless the disk was full.
        reason = _last_line(log_path(store, run.id))
        return reason or f"{ENDED}: {store.path.parent} can't be written (is the disk full?)"
    return f"{ENDED} (exit code {code})"


def _memory_ran_out(run_id: str) -> bool:
    """Whether the system killed a process for want of memory since the run began: most likely this one, then."""
    before, now = _oom_kills_before.get(run_id), oom_kills()
    return before is not None and now is not None and now > before


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def exit_code(run_id: str) -> int | None:
    """Exit status (negative: the signal) of a run's process if this process started it and it has ended; else None."""
    child = _children.get(run_id)
    return None if child is None else child.poll()


def follow_only(run_id: str, store: Store) -> None:
    """Tie a run to this process: when it dies, however, the worker stops and keeps what is finished."""
    store.update_run(run_id, **_owner())


def _owner() -> dict[str, Any]:
    return {"owner_pid": os.getpid(), "owner_started": process_started()}


def cancel(run_id: str, store: Store) -> None:
    """Ask a run to stop; repeats that are finished are kept. A run that has ended is left alone."""
    if status(run_id, store).state in ACTIVE:
        store.update_run(run_id, cancel_requested=True)


def kill(run_id: str, store: Store) -> None:
    """End a run's process at once; the run becomes failed."""
    run = status(run_id, store)
    if run.state in ACTIVE and run.pid not in (None, os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(run.pid or 0), signal.SIGKILL)


def restart(run_id: str, store: Store, *, started_by: str | None = None) -> str:
    """Start the same spec as a new run; returns its id."""
    run = store.get_run(run_id)
    return start(run.kind, run.spec, store, started_by=started_by)


def live(run_id: str, store: Store) -> dict[str, Any] | None:
    """The latest live object of a run; None before the first."""
    try:
        found = json.loads(live_path(store, run_id).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def wait(
    run_id: str, store: Store, on_live: Callable[[dict[str, Any] | None], None] = lambda _: None, poll_s: float = 0.2
) -> Run:
    """Block until a run has ended; on_live gets the live object at every look."""
    while (run := status(run_id, store)).state in ACTIVE:
        on_live(live(run_id, store))
        time.sleep(poll_s)
    child = _children.get(run_id)
    if child is not None:
        child.wait()
    return run


def delete(run_id: str, store: Store) -> None:
    """Remove a run, its records and its files; InputError while it is running."""
    if status(run_id, store).state in ACTIVE:
        raise InputError("run", run_id, "a run that has ended (cancel it first)")
    store.delete_run(run_id)
    _children.pop(run_id, None)
    _oom_kills_before.pop(run_id, None)
    for path in (live_path(store, run_id), log_path(store, run_id)):
        path.unlink(missing_ok=True)
