"""SemanticCache: answers by what was asked, whatever the words.

Owns the similarity threshold and one index of vectors a namespace: questions of two namespaces (model, prompt around
the question, sampling, data version) never meet. The nearest stored question alone is looked at: where the gate finds
it another one, those further away are hardly the same. It has to reach the threshold, then pass the gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from core_engine.answer_cache.embedder import Embedder
from core_engine.answer_cache.gate import Question, closeness, difference, read_question
from core_engine.answer_cache.shelf import Shelf, StoredAnswer
from core_engine.answer_cache.vector_index import EMPTY_BYTES, MakeIndex, VectorIndex

LONGEST_QUESTION = 512  # characters; the mean over a longer text hides the one word that differs


@dataclass(frozen=True)
class Probe:
    """A question as it is looked for, kept to be stored when its answer is there."""

    space: Hashable
    question: Question
    vector: np.ndarray


@dataclass(frozen=True)
class SemanticHit:
    """A stored answer to a question whose sentence vector has this cosine similarity to the one asked."""

    answer: StoredAnswer
    similarity: float
    question: str
    key: int  # on the shelf


@dataclass
class _Space:
    index: VectorIndex
    size: int = 0


class SemanticCache:
    """At most `most` answers over all namespaces. Not thread-safe. refused: nearest questions above the threshold
    that the gate kept apart, by its reason."""

    def __init__(self, embedder: Embedder, make_index: MakeIndex, threshold: float, most: int) -> None:
        self._embedder = embedder
        self._make_index = make_index
        self._threshold = threshold
        self._spaces: dict[Hashable, _Space] = {}
        self._probes: dict[int, Probe] = {}
        self._number = 0
        self.shelf: Shelf[int] = Shelf(most, self._removed)
        self.refused: Counter[str] = Counter()

    def probe(self, space: Hashable, question: str) -> Probe | None:
        """The question ready to be looked for; None when it is empty or too long."""
        if not question.strip() or len(question) > LONGEST_QUESTION:
            return None
        return Probe(space, read_question(question), self._embedder.embed(question))

    def find(self, probe: Probe, now_ns: int) -> SemanticHit | None:
        """The answer of the most similar question, when it reaches the threshold and passes the gate."""
        self.shelf.expire(now_ns)
        space = self._spaces.get(probe.space)
        if space is None:
            return None
        key, similarity = space.index.nearest(probe.vector)
        if similarity < self._threshold:
            return None
        other = self._probes[key]
        if closeness(similarity, probe.question, other.question) < self._threshold:
            return None
        reason = difference(probe.question, other.question)
        if reason is not None:
            self.refused[reason] += 1
            return None
        answer = self.shelf.use(key)
        return None if answer is None else SemanticHit(answer, similarity, other.question.text, key)

    def put(self, probe: Probe, answer: StoredAnswer, ends_ns: int, tags: tuple[str, ...]) -> None:
        """Keep the answer to a probed question until ends_ns at most."""
        self._number += 1
        space = self._spaces.setdefault(probe.space, _Space(self._make_index(self._embedder.dim)))
        space.index.add(self._number, probe.vector)
        space.size += 1
        self._probes[self._number] = probe
        self.shelf.put(self._number, answer, ends_ns, tags, self._vector_bytes())

    def num_bytes(self) -> int:
        """An estimate: the encoder, an index a namespace, and every vector twice, here and in its index."""
        vectors = self._vector_bytes() * len(self._probes)
        return self._embedder.num_bytes() + vectors + EMPTY_BYTES * len(self._spaces)

    def _vector_bytes(self) -> int:
        """Of one question: its vector here and in its index, float32."""
        return 2 * 4 * self._embedder.dim

    def _removed(self, key: int) -> None:
        probe = self._probes.pop(key)
        space = self._spaces[probe.space]
        space.index.remove(key)
        space.size -= 1
        if not space.size:
            del self._spaces[probe.space]
