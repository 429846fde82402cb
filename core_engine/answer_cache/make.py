"""The caches that a configuration asks for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from core_engine.answer_cache.caches import MOST_ENTRIES, AnswerCaches, Frame
from core_engine.answer_cache.exact import ExactKey
from core_engine.answer_cache.semantic import SemanticCache
from core_engine.answer_cache.shelf import Shelf
from core_engine.answer_cache.vector_index import UsearchIndex
from core_engine.config import EngineConfig

# Variables that change no answer's tokens in distribution; a cache is of one engine, whose other settings are fixed.
OF_AN_ANSWER = (
    "model", "dtype", "weights", "weight_group", "weight_symmetric", "head_weights", "kv_dtype", "kv_key_axis",
    "kv_protect", "prompt_compression", "prompt_keep", "router", "router_small", "router_threshold",
)  # fmt: skip


class Decoder(Protocol):
    """What is asked of a tokenizer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without special tokens."""
        ...


def make_caches(config: EngineConfig, tokenizer: Decoder) -> AnswerCaches | None:
    """None where both tiers are off; CannotRunError when the semantic one lacks its packages."""
    exact: Shelf[ExactKey] | None = Shelf(MOST_ENTRIES) if config.exact_cache == "on" else None
    semantic = None
    if config.semantic_cache == "on":
        from core_engine.answer_cache.e5 import load_e5

        encoder = load_e5()
        UsearchIndex(encoder.dim)  # says at once that it is missing
        encoder.embed("")  # the first pass is slow
        semantic = SemanticCache(encoder, UsearchIndex, config.semantic_threshold, MOST_ENTRIES)
    if exact is None and semantic is None:
        return None
    return AnswerCaches(exact, semantic, frame_of(tokenizer))


def settings_of_an_answer(config: EngineConfig) -> str:
    """The settings that tokens follow from, as a namespace's part."""
    settings = config.settings()
    return repr([(name, settings[name]) for name in OF_AN_ANSWER])


def frame_of(tokenizer: Decoder) -> Frame:
    """How a prompt is taken apart: its last occurrence of the question, and everything else of it, special tokens too.

    It works on the ids that the model gets, so that another template or system prompt can't be overlooked.
    """

    def frame(ids: Sequence[int], question: str | None) -> tuple[str, Hashable] | None:
        text = tokenizer.decode(ids)
        asked = text if question is None else question
        at = text.rfind(asked)
        if at < 0:
            return None
        special = tuple(token for token in ids if not tokenizer.decode([token]))
        return asked, (text[:at], text[at + len(asked) :], special)

    return frame
