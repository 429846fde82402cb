"""Shelf: stored answers by key, bounded in number, bytes and time, least recently used first, removable by tag.

Owns when an answer leaves. Knows no requests and no vectors; who keeps something beside an answer is told when it goes.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from core_engine.plan import TokenLogprobs
from core_engine.sizes import deep_bytes

Key = TypeVar("Key", bound=Hashable)

MOST_BYTES = 256 * 1024**2  # of one shelf: 10,000 answers of some 700 tokens each
TOKEN_BYTES = 36  # a place in a tuple and the number that stands there
KEPT_BYTES = 512  # of an answer besides its tokens, log-probabilities and key


@dataclass(frozen=True)
class StoredAnswer:
    """A finished answer. token_ids: all generated ones, the one that ended it included; source: the id of the request
    that computed it; since: how many invalidations there had been when that one came."""

    token_ids: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[TokenLogprobs, ...]
    source: str
    since: int = 0

    def num_bytes(self) -> int:
        """About what it takes to keep it."""
        logprobs = sum(deep_bytes([one.chosen, one.top]) for one in self.logprobs)
        return KEPT_BYTES + TOKEN_BYTES * len(self.token_ids) + logprobs


@dataclass(frozen=True)
class _Place:
    answer: StoredAnswer
    tags: tuple[str, ...]
    size: int  # bytes
    number: int  # tells this answer from an earlier one under the same key


@dataclass
class Departures:
    """How many answers have left, by reason."""

    evicted: int = 0
    expired: int = 0
    invalidated: int = 0


class Shelf(Generic[Key]):
    """At most `most` answers and `most_bytes`. on_removed is told the key of each that leaves; an answer that is
    replaced leaves too. num_bytes: about what the answers and their keys take."""

    def __init__(
        self, most: int, on_removed: Callable[[Key], None] = lambda key: None, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self._most, self._most_bytes = most, most_bytes
        self.num_bytes = 0
        self._on_removed = on_removed
        self._places: OrderedDict[Key, _Place] = OrderedDict()  # the least recently used first
        self._ends: list[tuple[int, int, Key]] = []  # (time in ns, number, key), a heap; some of them have left
        self._tagged: dict[str, set[Key]] = {}
        self._number = 0
        self.departures = Departures()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def items(self) -> list[tuple[Key, StoredAnswer]]:
        """(key, answer) of all, the least recently used first."""
        return [(key, place.answer) for key, place in self._places.items()]

    def use(self, key: Key) -> StoredAnswer | None:
        """The answer under a key, now the most recently used; call `expire` first."""
        place = self._places.get(key)
        if place is None:
            return None
        self._places.move_to_end(key)
        return place.answer

    def put(self, key: Key, answer: StoredAnswer, ends_ns: int, tags: tuple[str, ...] = (), key_bytes: int = 0) -> None:
        """Keep an answer until ends_ns at most; the least recently used ones make room. One that is larger than the
        shelf leaves again at once. key_bytes: what its key takes, and what is kept beside it elsewhere."""
        self._remove(key)
        self._number += 1
        size = answer.num_bytes() + key_bytes
        self._places[key] = _Place(answer, tags, size, self._number)
        self.num_bytes += size
        heapq.heappush(self._ends, (ends_ns, self._number, key))
        for tag in tags:
            self._tagged.setdefault(tag, set()).add(key)
        while len(self._places) > self._most or self.num_bytes > self._most_bytes:
            self._remove(next(iter(self._places)))
            self.departures.evicted += 1
        if len(self._ends) > 2 * self._most + 64:  # most of them of answers that left before their time
            self._ends = [end for end in self._ends if self._is_of(end)]
            heapq.heapify(self._ends)

    def expire(self, now_ns: int) -> None:
        """Let go of every answer whose time is over."""
        while self._ends and self._ends[0][0] <= now_ns:
            end = heapq.heappop(self._ends)
            if self._is_of(end):
                self._remove(end[2])
                self.departures.expired += 1

    def invalidate(self, tags: Iterable[str]) -> int:
        """Let go of every answer with one of the tags; returns how many."""
        keys = {key for tag in tags for key in self._tagged.get(tag, ())}
        for key in keys:
            self._remove(key)
        self.departures.invalidated += len(keys)
        return len(keys)

    def drop(self, key: Key) -> None:
        """Let go of one answer, which is out of date."""
        self._remove(key)
        self.departures.invalidated += 1

    def clear(self) -> int:
        """Let go of all; returns how many."""
        keys = list(self._places)
        for key in keys:
            self._remove(key)
        self._ends.clear()
        self.departures.invalidated += len(keys)
        return len(keys)

    def _is_of(self, end: tuple[int, int, Key]) -> bool:
        place = self._places.get(end[2])
        return place is not None and place.number == end[1]

    def _remove(self, key: Key) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        self.num_bytes -= place.size
        for tag in place.tags:
            self._tagged[tag].discard(key)
            if not self._tagged[tag]:
                del self._tagged[tag]
        self._on_removed(key)
