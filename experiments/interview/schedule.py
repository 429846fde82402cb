"""When a question that was missed comes back: Leitner's boxes, worked out from the answers and a clock's time.

A missed question goes into box 1 and is due a day later. Answered right when it is due, it moves one box on, and is due
after that box's days; answered right before, it stays where it is; answered wrong, it is in box 1 again. Right in the
last box: it has been learnt, and leaves until it is missed again. What was never missed is in no box. (Leitner, "So
lernt man lernen", 1972; the days are ours.) Pure functions: no clock is read and nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

BOX_DAYS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Answered:
    """One answer that counts for the boxes: which question, when, and whether it passed."""

    name: str
    at: datetime
    passed: bool


@dataclass(frozen=True)
class Card:
    """A question in a box (1 to 5) and when it is due."""

    name: str
    box: int
    due: datetime


def cards(answers: Iterable[Answered]) -> dict[str, Card]:
    """Name -> card of every question in a box, from all answers in any order."""
    found: dict[str, Card] = {}
    for answer in sorted(answers, key=lambda one: one.at):
        card = found.get(answer.name)
        if not answer.passed:
            found[answer.name] = _in_box(answer.name, 1, answer.at)
        elif card is not None and answer.at >= card.due:
            if card.box == len(BOX_DAYS):
                del found[answer.name]
            else:
                found[answer.name] = _in_box(answer.name, card.box + 1, answer.at)
    return found


def due(found: dict[str, Card], now: datetime) -> list[Card]:
    """The cards that are due, the longest overdue first."""
    return sorted((card for card in found.values() if card.due <= now), key=lambda card: (card.due, card.name))


def _in_box(name: str, box: int, at: datetime) -> Card:
    return Card(name, box, at + timedelta(days=BOX_DAYS[box - 1]))
