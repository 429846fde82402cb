"""CacheAsk: what one request allows of the answer caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from ledger.errors import InputError

MOST_TAGS = 32
LONGEST_TEXT = 256  # characters of a tag or a data version
LONGEST_TTL_S = 30 * 86_400.0


@dataclass(frozen=True)
class CacheAsk:
    """What a request allows. The engine's variables decide whether there is a cache at all.

    exact: it may be given the answer of the very same request, and its own may be kept for others. On by default: such
    an answer is the one it would compute. semantic: the same for a question in other words, whose answer may be
    another than its own. Off by default. question: what is asked, a part of the prompt's text; the rest of the prompt
    (template, system prompt, earlier turns) has to be the same to the letter. None: the whole prompt.
    data_version: of whatever the answer draws on; answers of another version are never reused. tags: names under which
    the answer can be invalidated. ttl_s: how long it may be reused at most, in s; None: as long as the cache keeps it.

    InputError names the field, the value and what is accepted.
    """

    exact: bool = True
    semantic: bool = False
    question: str | None = None
    data_version: str = ""
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("exact", "semantic"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"cache.{name}", getattr(self, name), "true or false")
        if self.question is not None and not isinstance(self.question, str):
            raise InputError("cache.question", self.question, "a text that the prompt contains")
        _short("cache.data_version", self.data_version, least=0)
        object.__setattr__(self, "tags", checked_tags(self.tags))
        if self.ttl_s is not None:
            object.__setattr__(self, "ttl_s", _seconds(self.ttl_s))

    @classmethod
    def from_json(cls, given: Any) -> CacheAsk:
        """The ask in a request's JSON; true stands for both tiers, false for none."""
        if isinstance(given, bool):
            return cls(exact=given, semantic=given)
        names = tuple(field.name for field in fields(cls))
        if not isinstance(given, Mapping):
            raise InputError("cache", given, f"true, false, or an object with {', '.join(names)}")
        for name, value in given.items():
            if name not in names:
                raise InputError(f"cache.{name}", value, f"only {', '.join(names)}")
        return cls(**{name: value for name, value in given.items() if value is not None})


def checked_tags(given: Any) -> tuple[str, ...]:
    """Tags, each once; InputError for what is none."""
    if not isinstance(given, list | tuple) or len(given) > MOST_TAGS:
        raise InputError("cache.tags", given, f"a list of at most {MOST_TAGS} texts")
    for tag in given:
        _short("cache.tags", tag, least=1)
    return tuple(dict.fromkeys(given))


def _short(field: str, value: Any, *, least: int) -> None:
    if not isinstance(value, str) or not least <= len(value) <= LONGEST_TEXT:
        raise InputError(field, value, f"a text of {least} to {LONGEST_TEXT} characters")


def _seconds(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # a NaN is in no range
    if not is_number or not 0 < value <= LONGEST_TTL_S:
        raise InputError("cache.ttl_s", value, f"seconds above 0 up to {LONGEST_TTL_S:g}")
    return float(value)
