"""The SQLite file under the store: one short connection and one transaction an operation.

Owns connecting, and turning a full or unwritable disk into one clear line. Knows no table.

A connection an operation (about 0.3 ms) makes a store safe to share between threads and processes; a write that fails
midway is rolled back by SQLite, so the file stays as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from experiments.store.schema import migrate
from ledger.errors import CannotRunError

BUSY_TIMEOUT_S = 15.0


class Database:
    """A file in WAL mode with today's schema; CannotRunError (one line) when it can't be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRunError(f"cannot create {self.path.parent} to store runs: {error.strerror}") from error
        with self._explained(), closing(self._connect()) as db:
            migrate(db, str(self.path))

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA foreign_keys = ON")
        # WAL with NORMAL: a power cut may lose the last transaction, never the file.
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        with self._explained(), closing(self._connect()) as db:
            # IMMEDIATE takes the write lock at once, so that two writers queue instead of failing halfway.
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield db
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            raise CannotRunError(f"cannot use the run store {self.path}: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    text = str(error)
    if "disk is full" in text or getattr(error, "errno", None) == 28:
        return "the disk is full; runs stored before are intact"
    if "readonly" in text:
        return "it is not writable"
    if "locked" in text:
        return f"another process has held it for over {BUSY_TIMEOUT_S:.0f} s"
    return text
