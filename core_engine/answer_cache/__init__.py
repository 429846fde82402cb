"""Answer caches: finished answers that a later request may be given instead of computing its own.

Owns what may be reused by whom and for how long. Two tiers: `exact` (the same request again) and `semantic` (the same
question in other words). Knows no scheduler and no KV; the engine asks before a request waits and stores when it ends.
"""

from core_engine.answer_cache.ask import CacheAsk
from core_engine.answer_cache.caches import AnswerCaches, Hit, Pending
from core_engine.answer_cache.make import make_caches, settings_of_an_answer

__all__ = [
    "AnswerCaches",
    "CacheAsk",
    "Hit",
    "Pending",
    "ask",
    "caches",
    "e5",
    "embedder",
    "exact",
    "gate",
    "make",
    "make_caches",
    "semantic",
    "settings_of_an_answer",
    "shelf",
    "vector_index",
]
