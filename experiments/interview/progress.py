"""What a learner has answered, in one SQLite file of its own under TRILEMMA_HOME: answers as they came, and mocks.

Score sheets and due dates are worked out from the answers, so nothing stored can contradict them. An answer is one
transaction: a process that is killed loses at most the one it was writing, and page and command line may write at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from experiments.interview import schedule
from experiments.interview.answering import Result
from experiments.interview.mock import Mock
from experiments.interview.schedule import Answered, Card
from experiments.store import data_home
from ledger.errors import CannotRunError, InputError

FILE_NAME = "interview.sqlite3"
BUSY_TIMEOUT_S = 15.0
Mode = Literal["ask", "mock", "review"]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, mode TEXT NOT NULL, mock TEXT, place INTEGER, ref TEXT NOT NULL,
    name TEXT NOT NULL, topic TEXT NOT NULL, answer TEXT NOT NULL, passed INTEGER NOT NULL, credit REAL NOT NULL,
    mistake TEXT, graded_by TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_answer_a_place ON answers (mock, place) WHERE mock IS NOT NULL;
CREATE TABLE IF NOT EXISTS mocks (
    id TEXT PRIMARY KEY, started TEXT NOT NULL, limit_s REAL NOT NULL, refs TEXT NOT NULL, ended TEXT
);
"""

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Stored:
    """One answer as it is stored."""

    at: datetime
    mode: Mode
    mock: str | None
    place: int | None
    ref: str
    name: str
    topic: str
    answer: str
    passed: bool
    credit: float
    mistake: str | None
    graded_by: str

    @property
    def answered(self) -> Answered:
        """What the boxes need of it."""
        return Answered(self.name, self.at, self.passed)


class Progress:
    """The learner's file; `now` is the only clock. CannotRunError (one line) when the file can't be used."""

    def __init__(self, path: Path | None = None, now: Clock = utc_now) -> None:
        self.path = path or data_home() / FILE_NAME
        self.now = now
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(_SCHEMA)

    def add(self, result: Result, mode: Mode, mock: str | None = None, place: int | None = None) -> None:
        """Store an answer. InputError for a place of a mock that has its answer."""
        one = result.item
        row = (
            self.now().isoformat(), mode, mock, place, one.ref, one.name, one.topic, result.answer, result.passed,
            result.credit, result.mistake, result.graded_by,
        )  # fmt: skip
        try:
            with self._transaction() as db:
                db.execute(
                    "INSERT INTO answers (at, mode, mock, place, ref, name, topic, answer, passed, credit, mistake,"
                    " graded_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
        except sqlite3.IntegrityError:
            raise InputError("answer", one.ref, "one answer to each question of a mock interview") from None

    def answers(self, mock: str | None = None) -> list[Stored]:
        """All answers, or those of a mock, in the order they came."""
        where, values = ("", ()) if mock is None else (" WHERE mock = ?", (mock,))
        with self._transaction() as db:
            rows = db.execute(f"SELECT * FROM answers{where} ORDER BY id", values).fetchall()
        return [_stored(row) for row in rows]

    def cards(self) -> dict[str, Card]:
        """Name -> card of every question that was missed and is still to be learnt.

        A question of a mock interview that was left without an answer was missed when that interview closed.
        """
        now = self.now()
        answers = _not_ahead(self.answers(), now)
        given = {(one.mock, one.place) for one in answers}
        left_out = [
            Answered(ref.partition(":")[0], mock.closes, False)
            for mock in self.mocks()
            if mock.is_over(now)
            for place, ref in enumerate(mock.refs)
            if (mock.id, place) not in given
        ]
        return schedule.cards([*(one.answered for one in answers), *left_out])

    def due(self) -> list[Card]:
        """The cards that are due now, the longest overdue first."""
        return schedule.due(self.cards(), self.now())

    def start(self, mock: Mock) -> None:
        """Store a mock interview that begins now."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO mocks (id, started, limit_s, refs) VALUES (?, ?, ?, ?)",
                (mock.id, mock.started.isoformat(), mock.limit_s, json.dumps(mock.refs)),
            )

    def mock(self, mock_id: str) -> Mock:
        """A mock interview by its id. InputError for one that is not here."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM mocks WHERE id = ?", (mock_id,)).fetchone()
        if row is None:
            raise InputError("mock", mock_id[:60], "the id of a mock interview of this machine")
        return _mock(row)

    def mocks(self) -> list[Mock]:
        """All mock interviews, the oldest first."""
        with self._transaction() as db:
            return [_mock(row) for row in db.execute("SELECT * FROM mocks ORDER BY started, id").fetchall()]

    def end(self, mock: Mock) -> None:
        """Close a mock interview; the first time counts."""
        with self._transaction() as db:
            db.execute("UPDATE mocks SET ended = ? WHERE id = ? AND ended IS NULL", (self.now().isoformat(), mock.id))

    def reset(self) -> int:
        """Forget everything; returns how many answers that were."""
        with self._transaction() as db:
            count: int = db.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
            db.execute("DELETE FROM answers")
            db.execute("DELETE FROM mocks")
        return count

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        db.row_factory = sqlite3.Row
        return db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            raise CannotRunError(f"cannot use the interview's answers {self.path}: {error}") from error


def _not_ahead(answers: list[Stored], now: datetime) -> list[Stored]:
    """The answers, none later than one that came after it, nor than now: a clock that was ahead for a day would
    otherwise put off a question until that day comes again."""
    found: list[Stored] = []
    for one in reversed(answers):
        now = min(now, one.at)
        found.append(replace(one, at=now))
    return found[::-1]


def _mock(row: sqlite3.Row) -> Mock:
    ended = None if row["ended"] is None else datetime.fromisoformat(row["ended"])
    started = datetime.fromisoformat(row["started"])
    return Mock(row["id"], started, row["limit_s"], tuple(json.loads(row["refs"])), ended)


def _stored(row: sqlite3.Row) -> Stored:
    values = {name: row[name] for name in row.keys() if name != "id"}  # noqa: SIM118 (a Row iterates over values)
    return Stored(**{**values, "at": datetime.fromisoformat(row["at"]), "passed": bool(row["passed"])})
