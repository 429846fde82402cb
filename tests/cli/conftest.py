"""A worker in the test's own process: starting one that loads torch anew takes longer than its work here."""

from __future__ import annotations

import os
import threading

import pytest

from experiments import jobs
from experiments.store import Store
from experiments.worker import work


class WorkerThread:
    """What `experiments.jobs` asks of a worker's process, of a thread that does the same work."""

    def __init__(self, run_id: str, store: Store) -> None:
        self.pid = os.getpid()
        self._code: int | None = None
        self._thread = threading.Thread(target=self._work, args=(run_id, store))
        self._thread.start()

    def _work(self, run_id: str, store: Store) -> None:
        self._code = work(run_id, store)

    def poll(self) -> int | None:
        """The exit code, None while it works."""
        return None if self._thread.is_alive() else self._code

    def wait(self) -> int | None:
        """The exit code, once it has ended."""
        self._thread.join()
        return self._code


@pytest.fixture
def worker_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are worked off in this process; that a process of its own does the same is tested beside."""
    monkeypatch.setattr(jobs, "_spawn", WorkerThread)
