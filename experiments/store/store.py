"""The run store: SQLite in WAL mode, one short connection and one transaction an operation.

Owns: the schema, the states a run may have, and turning a full or unwritable disk into one clear line.
Must not know: what a spec, a result or a record contains (they are JSON), or how a run is executed.

A connection an operation (about 0.3 ms) makes a Store safe to share between threads and processes; a write that fails
midway is rolled back by SQLite, so the file stays as it was.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ledger.errors import CannotRunError, InputError

KINDS = ("bench", "compare", "claim", "eval", "speculation", "profile")
STATES = ("queued", "running", "done", "failed", "cancelled")
BUSY_TIMEOUT_S = 15.0
# Scores kept for other runs to use; older ones go. One is some 200 bytes, of a window of text 30 KB.
MOST_SCORES = 100_000
SCHEMA_VERSION = 2
# What each version of the schema adds to the one before it.
_SCHEMA = (
    """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
  spec TEXT NOT NULL, result TEXT, error TEXT, pid INTEGER, pid_started REAL, cancel_requested INTEGER NOT NULL
);
CREATE INDEX runs_by_time ON runs (created_at);
CREATE TABLE records (
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, arm INTEGER NOT NULL, repeat INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (run_id, arm, repeat)
);
""",
    "CREATE TABLE scores (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL);",
)


@dataclass(frozen=True)
class Run:
    """One run. `created_at` and `updated_at` are ISO 8601 in UTC; `pid_started` is the process's start time, Unix s."""

    id: str
    kind: str
    state: str
    created_at: str
    updated_at: str
    spec: dict[str, Any]
    result: dict[str, Any] | None = None
    error: str | None = None
    pid: int | None = None
    pid_started: float | None = None
    cancel_requested: bool = False

    def to_json(self) -> dict[str, Any]:
        """The run as a JSON object with the field names as keys."""
        return asdict(self)


@dataclass(frozen=True)
class StoredRecord:
    """The raw events of one repeat (1-based) of one arm (0 = baseline)."""

    arm: int
    repeat: int
    record: dict[str, Any]


def data_home() -> Path:
    """Where runs are kept: $TRILEMMA_HOME, else ~/.local/share/trilemma."""
    given = os.environ.get("TRILEMMA_HOME")
    return Path(given).expanduser() if given else Path.home() / ".local" / "share" / "trilemma"


class Store:
    """Runs and their records in one file; `path` defaults to runs.sqlite3 under `data_home()`.

    Every method raises CannotRunError (one line) when the disk is full or the file cannot be used, and leaves what was
    stored before intact; an unknown run id raises InputError.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else data_home() / "runs.sqlite3"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRunError(f"cannot create {self.path.parent} to store runs: {error.strerror}") from error
        with self._explained():
            self._create_schema()

    def create_run(self, kind: str, spec: Mapping[str, Any]) -> str:
        """Stores a new run in state `queued` and returns its id (8 hexadecimal digits)."""
        if kind not in KINDS:
            raise InputError("kind", kind, ", ".join(KINDS))
        body, now = _dump(spec), _now()
        with self._transaction() as db:
            while True:
                run_id = secrets.token_hex(4)
                if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                    break
            db.execute(
                "INSERT INTO runs (id, kind, state, created_at, updated_at, spec, cancel_requested)"
                " VALUES (?, ?, 'queued', ?, ?, ?, 0)",
                (run_id, kind, now, now, body),
            )
        return run_id

    def get_run(self, run_id: str) -> Run:
        """The run with this id; raises InputError when there is none."""
        with self._transaction(write=False) as db:
            row = db.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise _unknown(run_id)
        return _run(row)

    def update_run(self, run_id: str, *, only_if_state: str | None = None, **fields: Any) -> bool:
        """Sets fields of Run (not id, kind, created_at, updated_at) and stamps `updated_at`; True when it was changed.

        With `only_if_state` the change happens only while the run is in that state, in one transaction, so that of two
        processes that end a run only the first succeeds.
        """
        columns = {name: _column(name, value) for name, value in fields.items()}
        columns["updated_at"] = _now()
        assignments = ", ".join(f"{name} = ?" for name in columns)
        with self._transaction() as db:
            row = db.execute("SELECT state FROM runs WHERE id = ?", (run_id,)).fetchone()
            if row is None:
                raise _unknown(run_id)
            if only_if_state is not None and row["state"] != only_if_state:
                return False
            db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), run_id))
        return True

    def list_runs(self, limit: int = 50, kind: str | None = None) -> list[Run]:
        """The newest `limit` runs, newest first, of one kind or of all."""
        with self._transaction(write=False) as db:
            rows = db.execute(
                "SELECT * FROM runs WHERE ? IS NULL OR kind = ? ORDER BY created_at DESC, rowid DESC LIMIT ?",
                (kind, kind, limit),
            ).fetchall()
        return [_run(row) for row in rows]

    def delete_run(self, run_id: str) -> None:
        """Removes a run and its records; raises InputError when there is none."""
        with self._transaction() as db:
            if db.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount == 0:
                raise _unknown(run_id)

    def add_record(self, run_id: str, arm: int, repeat: int, record: Mapping[str, Any]) -> None:
        """Stores the raw events of one repeat of one arm, in place of an earlier record of the same two."""
        body = zlib.compress(_dump(record).encode(), 6)
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                raise _unknown(run_id)
            db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (run_id, arm, repeat, body))

    def records(self, run_id: str) -> list[StoredRecord]:
        """All records of a run, by repeat and then by arm; empty while none is finished."""
        with self._transaction(write=False) as db:
            rows = db.execute(
                "SELECT arm, repeat, body FROM records WHERE run_id = ? ORDER BY repeat, arm", (run_id,)
            ).fetchall()
        return [StoredRecord(row["arm"], row["repeat"], json.loads(zlib.decompress(row["body"]))) for row in rows]

    def record_keys(self, run_id: str) -> list[tuple[int, int]]:
        """(arm, repeat) of every record of a run, in order; cheap, since no record is read."""
        with self._transaction(write=False) as db:
            rows = db.execute("SELECT arm, repeat FROM records WHERE run_id = ? ORDER BY arm, repeat", (run_id,))
            return [(row["arm"], row["repeat"]) for row in rows.fetchall()]

    def record(self, run_id: str, arm: int, repeat: int) -> dict[str, Any]:
        """The raw events of one repeat (from 1) of one arm (0 = baseline); InputError when there are none."""
        with self._transaction(write=False) as db:
            row = db.execute(
                "SELECT body FROM records WHERE run_id = ? AND arm = ? AND repeat = ?", (run_id, arm, repeat)
            ).fetchone()
        if row is None:
            raise InputError("record", f"{run_id} arm {arm} repeat {repeat}", "an arm and a repeat that are stored")
        found: dict[str, Any] = json.loads(zlib.decompress(row["body"]))
        return found

    def scores(self, keys: Sequence[str]) -> dict[str, Any]:
        """What is kept under these keys; a key that is not there is left out."""
        found: dict[str, Any] = {}
        with self._transaction(write=False) as db:
            for key in keys:
                row = db.execute("SELECT body FROM scores WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = json.loads(zlib.decompress(row["body"]))
        return found

    def keep_scores(self, scores: Mapping[str, Any]) -> None:
        """Keep JSON values under their keys for any later run, all or none; of too many the oldest are let go."""
        bodies = [(key, zlib.compress(_dump(value).encode(), 6)) for key, value in scores.items()]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO scores (key, body) VALUES (?, ?)", bodies)
            db.execute("DELETE FROM scores WHERE number <= (SELECT max(number) FROM scores) - ?", (MOST_SCORES,))

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA foreign_keys = ON")
        # WAL with NORMAL: a power cut may lose the last transaction, never the file.
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    def _create_schema(self) -> None:
        with closing(self._connect()) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise CannotRunError(f"{self.path} was written by a newer version of Trilemma (schema {version})")
            for addition in _SCHEMA[version:]:
                for statement in filter(str.strip, addition.split(";")):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("COMMIT")

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


def _column(name: str, value: Any) -> Any:
    """The value of one Run field as its column holds it."""
    if name == "state" and value not in STATES:
        raise InputError("state", value, ", ".join(STATES))
    if name in ("spec", "result"):
        return None if value is None else _dump(value)
    if name == "cancel_requested":
        return int(value)
    if name in ("state", "error", "pid", "pid_started"):
        return value
    raise InputError("field", name, "state, spec, result, error, pid, pid_started, cancel_requested")


def _run(row: sqlite3.Row) -> Run:
    values = dict(row)
    values["spec"] = json.loads(values["spec"])
    values["result"] = None if values["result"] is None else json.loads(values["result"])
    values["cancel_requested"] = bool(values["cancel_requested"])
    return Run(**values)


def _dump(value: Any) -> str:
    """Compact JSON; NaN and infinity are refused (ValueError), because other readers of JSON reject them."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _unknown(run_id: str) -> InputError:
    return InputError("run", run_id, "the id of a stored run (`trilemma runs` lists them)")
