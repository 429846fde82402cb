"""A timed mock interview: questions balanced over topics and forms, and what its time says. No clock is read here."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from experiments.interview.items import TOPICS, checked_topic, form_of, names
from ledger.errors import InputError

MOST_QUESTIONS, MOST_MINUTES = 50, 600.0
DEFAULT_QUESTIONS, DEFAULT_MINUTES = 10, 30.0
FORMS = ("numeric", "open", "choice")


@dataclass(frozen=True)
class Mock:
    """refs: the questions in their order. ended: when it was handed in, None while it runs."""

    id: str
    started: datetime
    limit_s: float
    refs: tuple[str, ...]
    ended: datetime | None = None

    @property
    def closes(self) -> datetime:
        """When it was handed in, or else when its time is over."""
        return self.ended or self.started + timedelta(seconds=self.limit_s)

    def left_s(self, now: datetime) -> float:
        """Seconds left, from 0 to the limit even where the clock was set back."""
        left = (self.started + timedelta(seconds=self.limit_s) - now).total_seconds()
        return min(self.limit_s, max(0.0, left))

    def left_share(self, now: datetime) -> float:
        """The same as a share of the limit."""
        return self.left_s(now) / self.limit_s

    def is_over(self, now: datetime) -> bool:
        """Handed in, or out of time: no answer counts any more."""
        return self.ended is not None or self.left_s(now) <= 0


def new_id() -> str:
    """An id for a mock interview."""
    return secrets.token_hex(4)


def plan(seed: int, count: int, topic: str | None = None) -> tuple[str, ...]:
    """References of `count` questions: topics in turn, in an order of the seed's, and forms in turn within each.

    No two topics differ by more than one question, and no question comes twice. InputError for a count that can't be.
    """
    available = {one: list(names(one)) for one in (TOPICS if topic is None else (checked_topic(topic),))}
    most = min(MOST_QUESTIONS, sum(map(len, available.values())))
    if not 1 <= count <= most:
        raise InputError("questions", count, f"a whole number from 1 to {most}")
    rng = Random(f"mock:{seed}")
    order = list(available)
    rng.shuffle(order)
    left = {one: _by_form(available[one], rng) for one in order}
    chosen: list[str] = []
    while len(chosen) < count:
        for one in order:
            if len(chosen) < count and left[one]:
                chosen.append(left[one].pop(0))
    return tuple(f"{name}:{rng.randrange(10**6)}" for name in chosen)


def _by_form(found: list[str], rng: Random) -> list[str]:
    """The names shuffled, numeric, open and choice in turn as far as there are any, beginning with any of them."""
    rng.shuffle(found)
    start = rng.randrange(len(FORMS))
    piles = [[name for name in found if form_of(name) == form] for form in (*FORMS[start:], *FORMS[:start])]
    mixed: list[str] = []
    while any(piles):
        mixed += [pile.pop(0) for pile in piles if pile]
    return mixed


def minutes(value: float) -> float:
    """A time limit in s from minutes. InputError for one that can't be."""
    if not 0 < value <= MOST_MINUTES:
        raise InputError("minutes", value, f"a number above 0, at most {MOST_MINUTES:g}")
    return 60.0 * value
