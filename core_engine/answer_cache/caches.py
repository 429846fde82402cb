"""AnswerCaches: the two tiers as the engine sees them: look before a request waits, store when it has ended.

Owns namespaces, lifetimes and what is counted. All times are the caller's, in ns on its clock. Not thread-safe: it
belongs to the engine's thread. Answers are in memory alone, so none outlives the process that computed it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.answer_cache.ask import CacheAsk
from core_engine.answer_cache.exact import ExactKey, exact_key, is_repeatable, key_bytes, settled
from core_engine.answer_cache.semantic import Probe, SemanticCache
from core_engine.answer_cache.shelf import Shelf, StoredAnswer
from core_engine.request import Request
from core_engine.sampling_params import SamplingParams

MOST_ENTRIES = 10_000  # of each tier
TTL_S = 3600.0  # what an answer lives without a ttl_s of its own
NS_PER_S = 1_000_000_000
LOOKUPS_KEPT = 100_000
MOST_MARKS = 10_000  # tags whose last invalidation is remembered
REUSABLE = ("stop", "length")  # how an answer ends that can be given again

Frame = Callable[[Sequence[int], str | None], tuple[str, Hashable] | None]
"""(the question's text, all of the prompt but it) of a prompt's ids; None when the question is not in the prompt."""


@dataclass(frozen=True)
class Hit:
    """A stored answer that a request gets. similarity: cosine, of the semantic tier alone."""

    tier: str
    answer: StoredAnswer
    similarity: float | None = None
    question: str | None = None

    def record(self) -> dict[str, Any]:
        """The run record's entry of the request."""
        return {"tier": self.tier, "source": self.answer.source, "similarity": self.similarity}


@dataclass(frozen=True)
class Pending:
    """What is needed to store the answer of a request that was looked for in vain."""

    ask: CacheAsk
    key: ExactKey | None
    probe: Probe | None
    since: int  # how many invalidations there had been


class AnswerCaches:
    """exact and semantic: the tiers there are, None where one is off."""

    def __init__(
        self,
        exact: Shelf[ExactKey] | None,
        semantic: SemanticCache | None,
        frame: Frame,
        *,
        ttl_s: float = TTL_S,
    ) -> None:
        self._exact, self._semantic, self._frame, self._ttl_s = exact, semantic, frame, ttl_s
        self._invalidations = 0
        self._cleared_at = 0
        self._invalidated_at: dict[str, int] = {}
        self.lookups: Counter[str] = Counter()  # by outcome: "exact", "semantic", "miss"
        self.lookup_ns: deque[int] = deque(maxlen=LOOKUPS_KEPT)

    def look(
        self, space: str, ids: Sequence[int], params: SamplingParams, ask: CacheAsk, now_ns: int
    ) -> tuple[Hit | None, Pending | None]:
        """The stored answer for a request, or what `store` needs later; neither when the request may use no tier.

        space: what else an answer depends on: model, weights, number formats. A stored answer that is older than the
        last invalidation of one of this request's tags is let go of: whoever computed it may not have named that tag.
        """
        if not is_repeatable(params):
            return None, None
        key = exact_key(space, ask.data_version, params, ids) if self._exact is not None and ask.exact else None
        if self._exact is not None and key is not None:
            self._exact.expire(now_ns)
            answer = self._exact.use(key)
            if answer is not None and not self._outdated(ask, answer.since):
                return self._counted(Hit("exact", answer)), None
            if answer is not None:
                self._exact.drop(key)
        probe = self._probe(space, ids, params, ask)
        if self._semantic is not None and probe is not None:
            found = self._semantic.find(probe, now_ns)
            if found is not None and not self._outdated(ask, found.answer.since):
                return self._counted(Hit("semantic", found.answer, found.similarity, found.question)), None
            if found is not None:
                self._semantic.shelf.drop(found.key)
        if key is None and probe is None:
            return None, None
        self.lookups["miss"] += 1
        return None, Pending(ask, key, probe, self._invalidations)

    def _counted(self, hit: Hit) -> Hit:
        self.lookups[hit.tier] += 1
        return hit

    def _probe(self, space: str, ids: Sequence[int], params: SamplingParams, ask: CacheAsk) -> Probe | None:
        if self._semantic is None or not ask.semantic:
            return None
        found = self._frame(ids, ask.question)
        if found is None:
            return None
        question, around = found
        return self._semantic.probe((space, ask.data_version, settled(params), around), question)

    def store(self, pending: Pending, request: Request, now_ns: int) -> None:
        """Keep the answer of a request that has ended, unless it was invalidated while it was being computed."""
        if request.finish_reason not in REUSABLE or self._outdated(pending.ask, pending.since):
            return
        ids = tuple(request.output_token_ids)
        answer = StoredAnswer(ids, request.finish_reason, tuple(request.logprobs), request.id, pending.since)
        ask = pending.ask
        ttl_s = self._ttl_s if ask.ttl_s is None else min(ask.ttl_s, self._ttl_s)
        ends_ns = now_ns + round(ttl_s * NS_PER_S)
        if self._exact is not None and pending.key is not None:
            self._exact.put(pending.key, answer, ends_ns, ask.tags, key_bytes(pending.key))
        if self._semantic is not None and pending.probe is not None:
            self._semantic.put(pending.probe, answer, ends_ns, ask.tags)

    def _outdated(self, ask: CacheAsk, since: int) -> bool:
        """Whether one of the tags was invalidated after that many invalidations."""
        marks = [self._cleared_at, *(self._invalidated_at.get(tag, 0) for tag in ask.tags)]
        return max(marks) > since

    def invalidate(self, tags: Iterable[str]) -> int:
        """Let go of every answer with one of the tags, and of those that are being computed; returns how many left."""
        gone = tuple(tags)
        self._invalidations += 1
        self._invalidated_at.update(dict.fromkeys(gone, self._invalidations))
        if len(self._invalidated_at) > MOST_MARKS:  # forget which tags: no older answer is kept or given
            self._cleared_at = self._invalidations
            self._invalidated_at.clear()
        return sum(shelf.invalidate(gone) for shelf in self._shelves())

    def clear(self) -> int:
        """Let go of every answer; returns how many."""
        self._invalidations += 1
        self._cleared_at = self._invalidations
        self._invalidated_at.clear()  # all older than this one
        return sum(shelf.clear() for shelf in self._shelves())

    def _shelves(self) -> list[Shelf[Any]]:
        semantic = None if self._semantic is None else self._semantic.shelf
        return [shelf for shelf in (self._exact, semantic) if shelf is not None]

    def stored(self) -> list[tuple[Hashable, StoredAnswer]]:
        """(key, answer) of all that the tiers hold."""
        return [pair for shelf in self._shelves() for pair in shelf.items()]

    def vector_bytes(self) -> int:
        """Of the semantic tier less its answers: encoder, vectors, indexes."""
        return 0 if self._semantic is None else self._semantic.num_bytes()

    def counters(self) -> dict[str, Any]:
        """What happened so far, for the run record; `refused` by what the gate found different."""
        shelves = self._shelves()
        left = [shelf.departures for shelf in shelves]
        return {
            "lookups": {tier: self.lookups[tier] for tier in ("exact", "semantic", "miss")},
            "lookup_ns": list(self.lookup_ns),
            "entries": sum(map(len, shelves)),
            "evicted": sum(each.evicted for each in left),
            "expired": sum(each.expired for each in left),
            "invalidated": sum(each.invalidated for each in left),
            "refused": {} if self._semantic is None else dict(self._semantic.refused),
        }
