"""What the tests of resilience share: a tiny model's settings, waiting, and what a run leaves behind on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
SHARED_MEMORY = Path("/dev/shm")


def settings_of(model: Path) -> dict[str, Any]:
    """Settings that run a tiny model on one thread."""
    return {"model": str(model), "dtype": "fp32", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}


def options_of(model: Path) -> list[str]:
    """The same as options of the command line."""
    return [part for name, value in settings_of(model).items() for part in ("--set", f"{name}={value}")]


def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition`; fails after two minutes."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def python(*arguments: str, home: Path, **settings: Any) -> subprocess.Popen[str]:
    """This tree's Python with a run store of its own, interruptible as a terminal's foreground is."""
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TRILEMMA_HOME": str(home), "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **settings,
    )  # fmt: skip


def trilemma(*arguments: str, home: Path) -> subprocess.Popen[str]:
    """The command line."""
    return python("-m", "experiments.cli", *arguments, home=home)


def processes_of(home: Path) -> list[psutil.Process]:
    """Every living process whose run store is `home`, whoever started it; not this one."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _is_of(process, home)]


def _is_of(process: psutil.Process, home: Path) -> bool:
    with suppress(psutil.Error, OSError):
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.environ().get("TRILEMMA_HOME") == str(home)
    return False


def segments() -> set[str]:
    """Names of this machine's shared memory."""
    with suppress(OSError):
        return {path.name for path in SHARED_MEMORY.iterdir()}
    return set()


def leaves_nothing(home: Path) -> Iterator[None]:
    """The body of a fixture: behind the test no process of the store and no segment of shared memory is left."""
    before = segments()
    yield
    until(lambda: not processes_of(home), 20.0)
    until(lambda: not segments() - before, 20.0)  # those of a test beside this one go with it
