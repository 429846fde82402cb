"""The schema of the run store, version by version, and how a store of an older version becomes one of today's.

A migration is one transaction: a process that is killed in it leaves the file as it was, and the next one begins again.
Old records stay as they are; their events are in their row instead of in files.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping

from experiments.store.arms import arms_of, insert_arms
from experiments.store.identity import spec_hash
from ledger.errors import CannotRunError

SCHEMA_VERSION = 4
# What each version of the schema adds to the one before it.
_ADDITIONS = (
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
    """
UPDATE runs SET ticket = rowid WHERE ticket IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS runs_by_ticket ON runs (ticket);
CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state, ticket);
CREATE INDEX IF NOT EXISTS runs_alike ON runs (kind, spec_hash, code);
CREATE TABLE IF NOT EXISTS arms (
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, arm INTEGER NOT NULL, variable TEXT, value TEXT,
  metrics TEXT, PRIMARY KEY (run_id, arm)
);
CREATE INDEX IF NOT EXISTS arms_by_value ON arms (variable, value);
""",
    "",
)
# Columns that a version adds to tables that were there, before its statements above.
# ticket: place in the queue, a new one each time a run is queued. lanes: the devices that it computes on, as JSON.
# started_by: the visitor of a page whose run it is.
_COLUMNS = {
    3: {
        "runs": {
            "ticket": "INTEGER", "lanes": "TEXT", "owner_pid": "INTEGER", "owner_started": "REAL", "spec_hash": "TEXT",
            "code": "TEXT", "version": "TEXT", "environment": "TEXT",
        },
        "records": {"files": "TEXT"},
    },
    4: {"runs": {"started_by": "TEXT"}},
}  # fmt: skip


def _fill_version_3(db: sqlite3.Connection) -> None:
    """What can be told of the runs of a store that had neither arms nor hashes."""
    for run_id, spec_text, result_text in db.execute("SELECT id, spec, result FROM runs").fetchall():
        spec = json.loads(spec_text)
        db.execute("UPDATE runs SET spec_hash = ? WHERE id = ?", (spec_hash(spec), run_id))
        if result_text is not None:
            insert_arms(db, run_id, arms_of(json.loads(result_text)))


def _add_columns(db: sqlite3.Connection, table: str, columns: Mapping[str, str]) -> None:
    there = {row["name"] for row in db.execute(f"PRAGMA table_info({table})").fetchall()}
    for name, kind in columns.items():
        if name not in there:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")


_FILL: dict[int, Callable[[sqlite3.Connection], None]] = {3: _fill_version_3}


def _version(db: sqlite3.Connection, name: str) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        line = f"{name} was written by a newer version of Trilemma (schema {version}; this one reads {SCHEMA_VERSION})"
        raise CannotRunError(f"{line}; it was left as it is")
    return version


def migrate(db: sqlite3.Connection, name: str) -> None:
    """Bring an opened store to today's schema; CannotRunError for one that a newer version wrote."""
    _version(db, name)  # before anything is written
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    version = _version(db, name)  # another process may have migrated it meanwhile
    for number, addition in enumerate(_ADDITIONS[version:], version + 1):
        for table, columns in _COLUMNS.get(number, {}).items():
            _add_columns(db, table, columns)
        for statement in filter(str.strip, addition.split(";")):
            db.execute(statement)
        if number in _FILL:
            _FILL[number](db)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("COMMIT")
