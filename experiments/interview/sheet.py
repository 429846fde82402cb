"""The score sheet: what was answered, by topic. Worked out from stored answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.interview.items import TOPICS, topic_of
from experiments.interview.mock import Mock
from experiments.interview.progress import Stored


@dataclass(frozen=True)
class Row:
    """A topic: questions asked, answered, passed, and their mean credit (0 to 1; None when none was asked)."""

    topic: str
    asked: int
    answered: int
    passed: int
    credit: float | None

    def to_json(self) -> dict[str, Any]:
        """The fields."""
        return dict(vars(self))


@dataclass(frozen=True)
class Sheet:
    """A row for every topic that was asked, the total of them, and the names of the questions missed."""

    rows: tuple[Row, ...]
    total: Row
    missed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Rows, total and what was missed."""
        return {
            "topics": [row.to_json() for row in self.rows],
            "total": self.total.to_json(),
            "missed": list(self.missed),
        }


def score(answers: Sequence[Stored]) -> Sheet:
    """The sheet of all answers."""
    return _sheet([(one.name, one.topic, one) for one in answers])


def mock_score(mock: Mock, answers: Iterable[Stored]) -> Sheet:
    """The sheet of a mock interview: a question without an answer counts as one without credit."""
    by_place = {one.place: one for one in answers if one.mock == mock.id}
    names = [ref.partition(":")[0] for ref in mock.refs]
    return _sheet([(name, topic_of(name), by_place.get(place)) for place, name in enumerate(names)])


def _sheet(found: list[tuple[str, str, Stored | None]]) -> Sheet:
    rows = [_row(topic, [one for _, of, one in found if of == topic]) for topic in TOPICS]
    missed = dict.fromkeys(name for name, _, one in found if one is None or not one.passed)
    return Sheet(tuple(row for row in rows if row.asked), _row("total", [one for _, _, one in found]), tuple(missed))


def _row(topic: str, answers: list[Stored | None]) -> Row:
    given = [one for one in answers if one is not None]
    credit = sum(one.credit for one in given) / len(answers) if answers else None
    return Row(topic, len(answers), len(given), sum(one.passed for one in given), credit)
