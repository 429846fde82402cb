"""Who computes when: one engine at a time on a device, first come first served.

Owns which devices a spec computes on (its lanes), the order in which waiting runs begin, and the locks. Two runs on one
device at once would measure each other; runs on different devices go side by side, and a run whose targets are all
elsewhere (an endpoint, a simulation) needs no lane and no lock.

A waiting run stands in the store with its ticket, and whoever is behind it waits while its process is alive: one that
was killed is passed over at once. The lock of a lane is the operating system's and goes with its process, however that
ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from core_engine.environment import cuda_is_here
from experiments.loadgen import Cancelled
from experiments.processes import is_at_work
from experiments.store import Run, Store
from ledger.errors import CannotRunError

POLL_S = 0.2
ELSEWHERE = ("endpoint", "endpoints", "base_url")


def lanes_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The devices that a run of a spec computes on, sorted: ("cpu",), ("cuda:0",), both, or none."""
    if _is_elsewhere(spec):
        return ()
    return tuple(sorted({_lane(name) for name in _devices(spec)} or {_lane("auto")}))


def _is_elsewhere(spec: Mapping[str, Any]) -> bool:
    target = spec.get("target")
    kind = target.get("kind") if isinstance(target, Mapping) else target
    return any(spec.get(name) for name in ELSEWHERE) or (kind is not None and kind != "engine")


def _devices(spec: Mapping[str, Any]) -> list[str]:
    """Every value of `device` in the settings, the arms and what is varied."""
    found = [settings["device"] for settings in _settings(spec) if "device" in settings]
    if spec.get("variable") == "device" or spec.get("over") == "device":
        found += list(spec.get("values") or ())
    if (vary := spec.get("vary")) and vary[0] == "device":
        found += list(vary[1])
    for name, values in spec.get("factors") or ():
        found += list(values) if name == "device" else []
    return [str(name) for name in found]


def _settings(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = spec.get("options")
    given = [spec.get("settings"), options.get("settings") if isinstance(options, Mapping) else None]
    arms = spec.get("arms")
    return [one for one in [*given, *(arms if isinstance(arms, list | tuple) else ())] if isinstance(one, Mapping)]


def _lane(device: str) -> str:
    if device == "cpu" or (device == "auto" and not cuda_is_here()):
        return "cpu"
    if ":" in device:
        return device
    # With CUDA_VISIBLE_DEVICES a process's first card is another one than the machine's.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return f"cuda:{visible or 0}"


@contextmanager
def turn(run: Run, store: Store, lanes: tuple[str, ...], should_cancel: Callable[[], bool]) -> Iterator[None]:
    """Wait until it is this run's turn on all its lanes and hold them; Cancelled when asked while waiting."""
    with ExitStack() as held:
        # Always in one order, so that no two runs hold what the other waits for.
        locks = [held.enter_context(open_lock(lock_path(store, lane))) for lane in lanes]
        while _are_ahead(run.id, store, lanes) or not _try_all(locks):
            if should_cancel():
                raise Cancelled
            time.sleep(POLL_S)
        yield


def _are_ahead(run_id: str, store: Store, lanes: tuple[str, ...]) -> bool:
    """Whether a living run that wants one of the lanes (or has not said which it wants) came before."""
    if not lanes:
        return False
    return any(_are_rivals(run, lanes) and is_at_work(run) for run in store.ahead_of(run_id))


def ahead(run: Run, store: Store) -> int:
    """How many living runs a queued one still waits for: those before it in the queue, and whoever computes."""
    before = [*store.ahead_of(run.id), *store.list_runs(state="running", results=False)]
    return sum(_are_rivals(one, run.lanes) and is_at_work(one) for one in before)


def _are_rivals(run: Run, lanes: Sequence[str] | None) -> bool:
    """Whether a run wants one of the lanes, or has not said which it wants."""
    return run.lanes is None or lanes is None or bool(set(run.lanes) & set(lanes))


def lock_path(store: Store, lane: str) -> Path:
    """The lock file of a lane of a store."""
    return store.path.parent / f"engine-{lane.replace(':', '-').replace('/', '-')}.lock"


def open_lock(path: Path) -> IO[str]:
    """The lock file; CannotRunError when it can't be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise CannotRunError(f"cannot write {path}: {error.strerror}") from None


def _try_all(locks: list[IO[str]]) -> bool:
    """Take all of them, or none."""
    for place, file in enumerate(locks):
        if not try_lock(file):
            for taken in locks[:place]:
                release(taken)
            return False
    return True


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


def release(file: IO[str]) -> None:
    """Give a lock back before its file is closed."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_UN)
