"""The SQLite file under the store: one short connection and one transaction an operation.

Owns connecting, reading where nothing can be written, and turning a full, locked or damaged store into one clear line.
Knows no table.

A connection an operation (about 0.3 ms) makes a store safe to share between threads and processes; a write that fails
midway is rolled back by SQLite, so the file stays as it was.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from experiments.store.schema import SCHEMA_VERSION, migrate
from ledger.errors import CannotRunError

BUSY_TIMEOUT_S = 15.0
# A reader of a file in WAL mode writes too: an index of 32 KiB beside it. Where that fails, these are the reasons.
CANNOT_WRITE = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LEAST_FREE_BYTES = 1024**2
FULL_DISK = "the disk is full; runs stored before are intact"


class Database:
    """A file in WAL mode with today's schema; CannotRunError (one line) when it can't be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRunError(f"cannot create {self.path.parent} to store runs: {error.strerror}") from error
        with self._explained():
            if self._version() != SCHEMA_VERSION:
                with closing(self._connect()) as db:
                    migrate(db, str(self.path))

    def _version(self) -> int:
        """Schema of the file; 0 for a new one. Nothing is written, so that a store on a full disk can be opened."""
        if not self.path.exists():
            return 0
        with closing(self._connect_to_read()) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA foreign_keys = ON")
            # WAL with NORMAL: a power cut may lose the last transaction, never the file.
            db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            db.close()
            raise
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        """A connection for reading; on a full or read-only disk one that needs to write nothing."""
        try:
            return self._connect()
        except sqlite3.OperationalError as error:
            if _code(error) not in CANNOT_WRITE or not self._is_whole():
                raise
        db = sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro&immutable=1", uri=True, isolation_level=None)
        db.row_factory = sqlite3.Row
        return db

    def _is_whole(self) -> bool:
        """Whether all that was stored is in the file itself: no process has left something in a log beside it."""
        log = self.path.with_name(self.path.name + "-wal")
        return self.path.is_file() and not (log.exists() and log.stat().st_size)

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        with self._explained(), closing(self._connect() if write else self._connect_to_read()) as db:
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
            raise CannotRunError(f"cannot use the run store {self.path}: {self._in_words(error)}") from error

    def _in_words(self, error: sqlite3.DatabaseError | OSError) -> str:
        if isinstance(error, OSError):
            return FULL_DISK if error.errno in FULL else error.strerror or str(error)
        code = _code(error)
        if code == sqlite3.SQLITE_FULL or (code in CANNOT_WRITE and self._is_full()):
            return FULL_DISK
        if code == sqlite3.SQLITE_READONLY:
            return "it is not writable"
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"another process has held it for over {BUSY_TIMEOUT_S:g} s"
        if code in DAMAGED:
            return (
                f"it is no run store or is damaged ({error}) and was left as it is; move it away to begin a new one, "
                f"or put a copy in its place"
            )
        return str(error)

    def _is_full(self) -> bool:
        try:
            return shutil.disk_usage(self.path.parent).free < LEAST_FREE_BYTES
        except OSError:
            return False


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's primary result code; None where Python raised the error itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
