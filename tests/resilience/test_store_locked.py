"""A store that another process holds: reading goes on, writing waits and then says so in one line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from experiments.store import Store, database
from ledger.errors import CannotRunError
from tests.resilience.helpers import until

HOLD = (
    "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    "db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()\n"
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.1)
    return Store(tmp_path / "runs.sqlite3")


@pytest.fixture
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a write that doesn't end."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


def test_runs_are_read_while_another_process_writes(store: Store, holder: subprocess.Popen[str]) -> None:
    assert store.list_runs() == [] and Store(store.path).count_runs() == 0


def test_a_write_that_waits_too_long_is_one_line_and_works_again_later(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(CannotRunError) as error:
        store.create_run("bench", {})
    expected = f"cannot use the run store {store.path}: another process has held it for over 0.1 s"
    assert str(error.value) == expected
    holder.kill()  # a killed writer leaves no lock and nothing half done
    holder.wait()
    run_id = until(lambda: store.create_run("bench", {}))
    assert [run.id for run in store.list_runs()] == [run_id]
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
