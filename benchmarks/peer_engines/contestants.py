"""Engines as processes of their own, of which one at a time may run: the others are stopped, so that none spins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ledger.errors import CannotRunError
from peer_engines.venvs import REPOSITORY, last_line

CHILDREN = Path(__file__).with_name("children")
LONGEST_S = 1800.0  # a start or an answer that takes longer is counted as none


@dataclass
class Contestant:
    """One engine with its settings. `options` go to the child, `environment` is added to the variables it is given."""

    name: str
    python: Path
    script: str
    options: dict[str, Any]
    environment: dict[str, str]
    log_file: Path
    about: dict[str, Any] = field(default_factory=dict)
    startup_s: float = 0.0
    _process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process and wait until it is ready; CannotRunError with what it said otherwise."""
        variables = {**os.environ, "HF_HUB_OFFLINE": "1", **self.environment}
        began = time.perf_counter()
        with self.log_file.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(self.python), str(CHILDREN / self.script), json.dumps(self.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=variables,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        self.about = self._reply()["ready"]
        self.startup_s = time.perf_counter() - began
        self._signal(signal.SIGSTOP)

    def answer(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """{"ids", "times_s"} of the prompts, see children/protocol.py; the process runs only for so long."""
        assert self._process is not None and self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"prompts": prompts, "new_tokens": new_tokens}) + "\n")
            self._process.stdin.flush()
            return self._reply()
        except BrokenPipeError:
            raise CannotRunError(f"{self.name}: it ended; {last_line(self.log_file)}") from None
        finally:
            self._signal(signal.SIGSTOP)

    def peak_bytes(self) -> int:
        """Largest resident memory of its processes, each at its own time, added up."""
        assert self._process is not None
        family = [self._process.pid, *(child.pid for child in psutil.Process(self._process.pid).children(True))]
        found = sum(peak_of(pid) for pid in family)
        return max(found, self.about.get("loading_peak_bytes") or 0)

    def end(self) -> None:
        """End the process and all it started."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _reply(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        too_long = threading.Timer(LONGEST_S, lambda: self._signal(signal.SIGKILL))
        too_long.start()
        try:
            line = self._process.stdout.readline()
        finally:
            too_long.cancel()
        reply = json.loads(line) if line else {"error": f"it ended without a word; {last_line(self.log_file)}"}
        if "error" in reply:
            raise CannotRunError(f"{self.name}: {reply['error']}")
        return reply

    def _signal(self, number: signal.Signals) -> None:
        """To all its processes; nothing when they have ended."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def peak_of(pid: int) -> int:
    """Largest resident memory of a process in bytes; 0 when it has ended or the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


@contextmanager
def all_ended(contestants: list[Contestant]) -> Iterator[None]:
    """End every contestant's processes on leaving, also when this process is asked to end."""

    def leave(*_: object) -> None:
        raise SystemExit(1)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for contestant in contestants:
            contestant.end()
