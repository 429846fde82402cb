"""Whether a cache ever gives an old answer: one question asked again after each thing that makes its answer old.

The caches are the engine's own, with the encoder that a run has; model, template and clock are names and numbers here,
as they are to the caches. A change must miss in both tiers; nothing changed must hit in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from core_engine.answer_cache import AnswerCaches, CacheAsk
from core_engine.answer_cache.caches import NS_PER_S
from core_engine.answer_cache.embedder import Embedder
from core_engine.answer_cache.exact import ExactKey
from core_engine.answer_cache.make import frame_of
from core_engine.answer_cache.semantic import SemanticCache
from core_engine.answer_cache.shelf import Shelf
from core_engine.answer_cache.vector_index import MakeIndex
from core_engine.request import Request, RequestLog
from core_engine.sampling_params import SamplingParams

QUESTION, AGAIN = "How much does a day pass cost?", "How much does a day pass cost, please?"
SOURCE, TTL_S = "price list", 60.0
TEMPLATE = "<system>{system}</system><user>{question}</user>"
FIRST: dict[str, Any] = {
    "model": "one", "template": TEMPLATE, "system": "Answer briefly.", "params": SamplingParams(max_tokens=8),
    "data_version": "2025-01", "after_s": 1.0, "invalidated": (),
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "model": {"model": "another"},
    "template": {"template": TEMPLATE.replace("user", "human")},
    "system prompt": {"system": "Answer at length."},
    "sampling": {"params": replace(FIRST["params"], temperature=0.7, seed=1)},
    "data version": {"data_version": "2025-02"},
    "source tag": {"invalidated": (SOURCE,)},
    "another tag": {"invalidated": ("opening hours",)},
    "time": {"after_s": TTL_S},
}
HARMLESS = ("nothing", "another tag")


def staleness(encoder: Embedder, make_index: MakeIndex, threshold: float) -> list[dict[str, Any]]:
    """A row a change: {"change","exact","semantic","must_hit"}: whether each tier gave the stored answer."""
    return [
        {
            "change": name,
            "exact": _hits(_caches(None, make_index, threshold), changes, QUESTION, semantic=False),
            "semantic": _hits(_caches(encoder, make_index, threshold), changes, AGAIN, semantic=True),
            "must_hit": name in HARMLESS,
        }
        for name, changes in CHANGES.items()
    ]


def is_fresh(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether every change missed, and what changed nothing hit."""
    return all(row["exact"] == row["semantic"] == row["must_hit"] for row in rows)


class _Characters:
    """A tokenizer of one token a character."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def _caches(encoder: Embedder | None, make_index: MakeIndex, threshold: float) -> AnswerCaches:
    """One tier alone: the exact one without an encoder."""
    exact: Shelf[ExactKey] | None = Shelf(10) if encoder is None else None
    semantic = None if encoder is None else SemanticCache(encoder, make_index, threshold, 10)
    return AnswerCaches(exact, semantic, frame_of(_Characters()), ttl_s=TTL_S)


def _hits(caches: AnswerCaches, changes: dict[str, Any], asked: str, *, semantic: bool) -> bool:
    look = _looker(caches, semantic)
    _, pending = look(FIRST, QUESTION)
    assert pending is not None
    caches.store(pending, _answered(), 0)
    now = {**FIRST, **changes}
    caches.invalidate(now["invalidated"])
    return look(now, asked)[0] is not None


def _looker(caches: AnswerCaches, semantic: bool) -> Callable[[dict[str, Any], str], tuple[Any, Any]]:
    def look(state: dict[str, Any], question: str) -> tuple[Any, Any]:
        prompt = state["template"].format(system=state["system"], question=question)
        ask = CacheAsk(
            exact=not semantic, semantic=semantic, question=question, data_version=state["data_version"], tags=(SOURCE,)
        )
        now_ns = 0 if state is FIRST else round(state["after_s"] * NS_PER_S)
        return caches.look(state["model"], list(map(ord, prompt)), state["params"], ask, now_ns)

    return look


def _answered() -> Request:
    request = Request("first", 0, [1, 2], 1, FIRST["params"], 0, RequestLog(0, 0))
    request.finish_reason = "stop"
    return request
