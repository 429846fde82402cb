"""The run store: runs, their arms and scores in SQLite, the events of their records in Parquet files beside it.

Owns the states a run may have, the order of the queue, and that a row and its files come and go together.
Must not know: what a spec or a record contains (they are JSON), or how a run is executed. Of a result it knows the
arms (arms.py).
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.store import events
from experiments.store.arms import Arm, arms_of, insert_arms, select_arms
from experiments.store.database import Database
from experiments.store.identity import spec_hash
from ledger.errors import CannotRunError, InputError

KINDS = (
    "bench", "compare", "factorial", "claim", "eval", "speculation", "profile", "sweep", "jitter", "plan", "cache",
    "ladder", "levers", "claims", "calibrate",
)  # fmt: skip
STATES = ("queued", "running", "done", "failed", "cancelled")
# Scores kept for other runs to use; older ones go. One is some 200 bytes, of a window of text 30 KB.
MOST_SCORES = 100_000


@dataclass(frozen=True)
class Run:
    """One run. `created_at` and `updated_at` are ISO 8601 in UTC; `pid_started` is when the process began
    (processes.process_started).

    `ticket` is its place in the queue, `lanes` the devices it computes on (None: not known yet), `owner_pid` the
    command line that it must not outlive. `code`, `version` and `environment` are those that it ran with
    (identity.py). `started_by` is the visitor of a page whose run it is, None for the command line's.
    """

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
    ticket: int | None = None
    lanes: list[str] | None = None
    owner_pid: int | None = None
    owner_started: float | None = None
    spec_hash: str | None = None
    code: str | None = None
    version: str | None = None
    environment: dict[str, Any] | None = None
    started_by: str | None = None

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


class Store(Database):
    """Runs and their records in one file; `path` defaults to runs.sqlite3 under `data_home()`.

    Every method raises CannotRunError (one line) when the disk is full or the file cannot be used, and leaves what was
    stored before intact; an unknown run id raises InputError.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(Path(path) if path is not None else data_home() / "runs.sqlite3")

    def create_run(self, kind: str, spec: Mapping[str, Any], **fields: Any) -> str:
        """Stores a new run in state `queued`, last in the queue, and returns its id (8 hexadecimal digits).

        fields: of Run, as `update_run` takes them.
        """
        if kind not in KINDS:
            raise InputError("kind", kind, ", ".join(KINDS))
        body, now = _dump(spec), _now()
        columns = {name: _column(name, value) for name, value in fields.items()}
        with self._transaction() as db:
            while True:
                run_id = secrets.token_hex(4)
                if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                    break
            row = {
                "id": run_id, "kind": kind, "state": "queued", "created_at": now, "updated_at": now, "spec": body,
                "spec_hash": spec_hash(spec), "cancel_requested": 0, "ticket": _next_ticket(db), **columns,
            }  # fmt: skip
            _insert(db, row)
        return run_id

    def insert_run(self, run: Run, keep_records: Callable[[Path], Sequence[tuple[int, int, Any, list[Any]]]]) -> None:
        """Store a run that ended elsewhere under its own id, whole or not at all; InputError when the id is taken.

        keep_records writes the files of its records into the folder that it gets and returns (arm, repeat, the rest of
        the record, files) of each.
        """
        row = {name: _column(name, value) for name, value in asdict(run).items() if name in _SETTABLE}
        row |= {"id": run.id, "kind": run.kind, "created_at": run.created_at, "updated_at": run.updated_at}
        folder = self._folder(run.id)
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run.id,)).fetchone() is not None:
                raise InputError("run", run.id, "a run that is not stored here yet (delete that one first)")
            try:
                _insert(db, {**row, "spec_hash": spec_hash(run.spec), "ticket": _next_ticket(db)})
                insert_arms(db, run.id, arms_of(run.result))
                for arm, repeat, rest, files in keep_records(folder):
                    _insert_record(db, run.id, arm, repeat, rest, files)
            except BaseException:
                events.remove_folder(folder)
                raise

    def get_run(self, run_id: str) -> Run:
        """The run with this id; raises InputError when there is none."""
        with self._transaction(write=False) as db:
            row = db.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise _unknown(run_id)
        return _run(row)

    def update_run(self, run_id: str, *, only_if_state: str | None = None, **fields: Any) -> bool:
        """Sets fields of Run (not id, kind, created_at, updated_at) and stamps `updated_at`; True when it was changed.

        A result brings its arms along, and a run that is queued again goes to the end of the queue. With
        `only_if_state` the change happens only while the run is in that state, in one transaction, so that of two
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
            if fields.get("state") == "queued" and row["state"] != "queued":
                db.execute("UPDATE runs SET ticket = ? WHERE id = ?", (_next_ticket(db), run_id))
            if "result" in fields:
                insert_arms(db, run_id, arms_of(fields["result"]))
            if "spec" in fields:
                db.execute("UPDATE runs SET spec_hash = ? WHERE id = ?", (spec_hash(fields["spec"]), run_id))
        return True

    def list_runs(
        self,
        limit: int = 50,
        kind: str | None = None,
        *,
        state: str | None = None,
        workload: str | None = None,
        text: str | None = None,
        offset: int = 0,
        results: bool = True,
    ) -> list[Run]:
        """`limit` runs after the first `offset`, newest first: of one kind, state and workload, or of all.

        Newest is who came into the store last; a wall clock that was set back in between changes no order.
        text: what the id, the spec or the error must contain, in any case. Without `results` no result is read, which
        is what takes the time: `result` is None then.
        """
        where, values = _filter(kind, state, workload, text)
        with self._transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_COLUMNS if results else _BRIEF} FROM runs {where} ORDER BY rowid DESC LIMIT ? OFFSET ?",
                (*values, limit, offset),
            ).fetchall()
        return _runs(rows)

    def count_runs(
        self,
        kind: str | None = None,
        *,
        state: str | None = None,
        workload: str | None = None,
        text: str | None = None,
    ) -> int:
        """How many runs `list_runs` would list with the same filter."""
        where, values = _filter(kind, state, workload, text)
        with self._transaction(write=False) as db:
            return int(db.execute(f"SELECT count(*) FROM runs {where}", values).fetchone()[0])

    def workloads(self) -> list[str]:
        """The names of the workloads that any run is about."""
        with self._transaction(write=False) as db:
            rows = db.execute(f"SELECT DISTINCT {_WORKLOAD} FROM runs ORDER BY 1").fetchall()
        return [row[0] for row in rows if isinstance(row[0], str)]

    def find(
        self,
        kind: str,
        spec_hash: str | None = None,
        code: str | None = None,
        environment: Mapping[str, Any] | None = None,
        *,
        state: str | None = "done",
        limit: int = 50,
    ) -> list[Run]:
        """Runs of a kind with the same spec, code and environment (see identity.py), newest first; None asks for any.

        Runs that were resumed with other code have both codes and are found with neither.
        """
        wanted = None if environment is None else _dump_sorted(environment)
        with self._transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM runs WHERE kind = ?1 AND (?2 IS NULL OR spec_hash = ?2)"
                " AND (?3 IS NULL OR code = ?3) AND (?4 IS NULL OR environment = ?4) AND (?5 IS NULL OR state = ?5)"
                " ORDER BY ticket DESC LIMIT ?6",
                (kind, spec_hash, code, wanted, state, limit),
            ).fetchall()
        return _runs(rows)

    def arms(
        self, run_id: str | None = None, *, variable: str | None = None, value: Any = None, limit: int = 200
    ) -> list[Arm]:
        """Arms with what they came to: of one run, or of every run about a variable, or with a value of it."""
        with self._transaction(write=False) as db:
            return select_arms(db, run_id, variable, value, limit)

    def ahead_of(self, run_id: str) -> list[Run]:
        """The queued runs that came before this one, first come first."""
        with self._transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_BRIEF} FROM runs WHERE state = 'queued'"
                " AND ticket < (SELECT ticket FROM runs WHERE id = ?) ORDER BY ticket",
                (run_id,),
            ).fetchall()
        return _runs(rows)

    def delete_run(self, run_id: str) -> None:
        """Removes a run, its records and their files; raises InputError when there is none."""
        with self._transaction() as db:
            if db.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount == 0:
                raise _unknown(run_id)
        events.remove_folder(self._folder(run_id))

    def add_record(self, run_id: str, arm: int, repeat: int, record: Mapping[str, Any]) -> None:
        """Stores the raw events of one repeat of one arm, in place of an earlier record of the same two."""
        rest, lists = events.set_apart(record)
        body = pack(rest)
        folder = self._folder(run_id)
        with self._explained():
            files = events.write(folder, arm, repeat, lists)
        try:
            with self._transaction() as db:
                if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                    raise _unknown(run_id)
                before = db.execute(f"SELECT files {_ONE_RECORD}", (run_id, arm, repeat)).fetchone()
                _insert_record(db, run_id, arm, repeat, body, [file.to_json() for file in files])
        except BaseException:
            events.remove(folder, files)
            with suppress(OSError):  # other records have files there
                folder.rmdir()
            raise
        events.remove(folder, json.loads(before["files"] or "[]") if before is not None else [])

    def records(self, run_id: str) -> list[StoredRecord]:
        """All records of a run, by repeat and then by arm; empty while none is finished. Errors as `record`."""
        keys = sorted(self.record_keys(run_id), key=lambda key: (key[1], key[0]))
        return [StoredRecord(arm, repeat, self.record(run_id, arm, repeat)) for arm, repeat in keys]

    def record_keys(self, run_id: str) -> list[tuple[int, int]]:
        """(arm, repeat) of every record of a run, in order; cheap, since no record is read."""
        with self._transaction(write=False) as db:
            rows = db.execute("SELECT arm, repeat FROM records WHERE run_id = ? ORDER BY arm, repeat", (run_id,))
            return [(row["arm"], row["repeat"]) for row in rows.fetchall()]

    def intact_records(self, run_id: str, arms: Sequence[int]) -> dict[tuple[int, int], dict[str, Any]]:
        """The records of some arms by (arm, repeat), to go on from; a damaged one is left out and measured anew."""
        found = {}
        for arm, repeat in self.record_keys(run_id):
            if arm in arms:
                with suppress(events.DamagedRecord):
                    found[arm, repeat] = self.record(run_id, arm, repeat)
        return found

    def record(self, run_id: str, arm: int, repeat: int) -> dict[str, Any]:
        """The raw events of one repeat (from 1) of one arm (0 = baseline); InputError when there are none.

        DamagedRecord (a CannotRunError of one line) when a file of it is missing or not as it was written.
        """
        where = _where(run_id, arm, repeat)
        rest, files = self.record_parts(run_id, arm, repeat)
        try:
            lists = events.read(self._folder(run_id), files, where)
        except FileNotFoundError:
            # Another process may have put a newer record in its place in between.
            rest, files = self.record_parts(run_id, arm, repeat)
            try:
                lists = events.read(self._folder(run_id), files, where)
            except FileNotFoundError as error:
                raise events.missing(where, error) from None
        return {**rest, **lists}

    def record_parts(self, run_id: str, arm: int, repeat: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """(a record with null for the lists that are in files, those files); InputError when there is none."""
        with self._transaction(write=False) as db:
            row = db.execute(f"SELECT body, files {_ONE_RECORD}", (run_id, arm, repeat)).fetchone()
        if row is None:
            raise InputError("record", f"{run_id} arm {arm} repeat {repeat}", "an arm and a repeat that are stored")
        try:
            return json.loads(zlib.decompress(row["body"])), json.loads(row["files"] or "[]")
        except (zlib.error, ValueError):
            where = _where(run_id, arm, repeat)
            raise events.DamagedRecord(f"{where}: its row is not as it was written; other runs are intact") from None

    def event_file(self, run_id: str, arm: int, repeat: int, file: Mapping[str, Any]) -> bytes:
        """The bytes of one file of `record_parts`; DamagedRecord as `record`."""
        where = _where(run_id, arm, repeat)
        try:
            return events.body_of(self._folder(run_id), file, where)
        except FileNotFoundError as error:
            raise events.missing(where, error) from None

    def sweep(self) -> int:
        """Remove files that no record of a stored run names, which a killed process left; returns how many.

        Files of runs that are not stored here stay: the database may be a new one in the place of a damaged one.
        """
        with self._transaction(write=False) as db:
            rows = db.execute("SELECT runs.id, files FROM runs LEFT JOIN records ON run_id = runs.id").fetchall()
        named: dict[str, set[str]] = {}
        for row in rows:
            named.setdefault(row["id"], set()).update(file["name"] for file in json.loads(row["files"] or "[]"))
        return events.sweep(self.path.parent / "events", named)

    def _folder(self, run_id: str) -> Path:
        """Where the files of a run's records are."""
        return self.path.parent / "events" / run_id

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
        bodies = [(key, pack(value)) for key, value in scores.items()]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO scores (key, body) VALUES (?, ?)", bodies)
            db.execute("DELETE FROM scores WHERE number <= (SELECT max(number) FROM scores) - ?", (MOST_SCORES,))


_WORKLOAD = "CASE WHEN json_valid(spec) THEN json_extract(spec, '$.workload') END"
_ONE_RECORD = "FROM records WHERE run_id = ? AND arm = ? AND repeat = ?"
_COLUMNS = ", ".join(Run.__dataclass_fields__)
_BRIEF = _COLUMNS.replace("result,", "NULL AS result,")
_SETTABLE = (
    "state", "spec", "result", "error", "pid", "pid_started", "cancel_requested", "lanes", "owner_pid",
    "owner_started", "code", "version", "environment", "started_by",
)  # fmt: skip


def _filter(kind: str | None, state: str | None, workload: str | None, text: str | None) -> tuple[str, list[Any]]:
    """The WHERE clause of a list of runs and its values."""
    parts = {"kind = ?": kind, "state = ?": state, f"{_WORKLOAD} = ?": workload}
    clauses, values = [], []
    for clause, value in parts.items():
        if value is not None:
            clauses.append(clause)
            values.append(value)
    if text:
        # instr over lower case instead of LIKE: what the reader types has no wildcards.
        clauses.append("instr(lower(id || ' ' || kind || ' ' || spec || ' ' || coalesce(error, '')), lower(?)) > 0")
        values.append(text)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values


def _next_ticket(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(ticket), 0) + 1 FROM runs").fetchone()[0])


def _insert(db: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def _insert_record(db: sqlite3.Connection, run_id: str, arm: int, repeat: int, body: bytes, files: list[Any]) -> None:
    db.execute(
        "INSERT OR REPLACE INTO records (run_id, arm, repeat, body, files) VALUES (?, ?, ?, ?, ?)",
        (run_id, arm, repeat, body, _dump(files) if files else None),
    )


def _where(run_id: str, arm: int, repeat: int) -> str:
    return f"record of run {run_id}, arm {arm}, repeat {repeat}"


def _column(name: str, value: Any) -> Any:
    """The value of one Run field as its column holds it."""
    if name not in _SETTABLE:
        raise InputError("field", name, ", ".join(_SETTABLE))
    if name == "state" and value not in STATES:
        raise InputError("state", value, ", ".join(STATES))
    if name in ("spec", "result", "lanes"):
        return None if value is None else _dump(value)
    if name == "environment":
        return None if value is None else _dump_sorted(value)
    return int(value) if name == "cancel_requested" else value


def _runs(rows: Sequence[sqlite3.Row]) -> list[Run]:
    """The runs of rows. One whose row is damaged is left out of a list, which would hide all others otherwise."""
    found = []
    for row in rows:
        with suppress(CannotRunError):
            found.append(_run(row))
    return found


def _run(row: sqlite3.Row) -> Run:
    values = dict(row)
    if not isinstance(values["id"], str) or values["kind"] not in KINDS or values["state"] not in STATES:
        raise CannotRunError(f"run {values['id']}: its row is not as it was written; other runs are intact")
    for name in ("spec", "result", "lanes", "environment"):
        try:
            values[name] = None if values[name] is None else json.loads(values[name])
        except (ValueError, TypeError):
            line = f"run {row['id']}: its {name} is not as it was written; other runs are intact"
            raise CannotRunError(line) from None
    values["cancel_requested"] = bool(values["cancel_requested"])
    return Run(**values)


def pack(value: Any) -> bytes:
    """The JSON of a record as its row holds it."""
    return zlib.compress(_dump(value).encode(), 6)


def _dump(value: Any) -> str:
    """Compact JSON; NaN and infinity are refused (ValueError), because other readers of JSON reject them."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _dump_sorted(value: Any) -> str:
    """JSON that is the same text for equal objects, so that a column can be compared."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _unknown(run_id: str) -> InputError:
    return InputError("run", run_id, "the id of a stored run (`trilemma runs` lists them)")
