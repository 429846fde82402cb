"""Whether two questions differ in something that an answer depends on."""

from __future__ import annotations

from difflib import SequenceMatcher

from core_engine.answer_cache.gate.chinese import ChineseReading
from core_engine.answer_cache.gate.chinese_difference import chinese_difference, chinese_stretch
from core_engine.answer_cache.gate.question import Question, Reading

# From this share of common tokens in common order on, two questions are one sentence with something changed in it: what
# was changed is then what is asked. Below, they are worded differently, and single words say less.
SAME_SENTENCE = 0.42
SAME_NAME = 5  # letters that two forms of one name begin with: Europe, European


def difference(one: Question, other: Question) -> str | None:
    """What keeps the questions apart: "language", "numbers", "units", "negation", "opposites", "names", "asks",
    "words" or "order"; None when nothing does."""
    if one.language != other.language:
        return "language"
    a, b = one.reading, other.reading
    if isinstance(a, ChineseReading) and isinstance(b, ChineseReading):
        return chinese_difference(a, b)
    return _typed(a, b) or _wording(a, b)


def closeness(similarity: float, one: Question, other: Question) -> float:
    """The cosine similarity of the questions as it would be in English, for which thresholds are: 1 stays 1."""
    a, b = one.reading, other.reading
    if isinstance(a, ChineseReading) and isinstance(b, ChineseReading):
        return 1 - (1 - similarity) * chinese_stretch(a, b)
    return similarity


def _typed(a: Reading, b: Reading) -> str | None:
    if a.numbers != b.numbers:
        return "numbers"
    if a.units and b.units and a.units != b.units:
        return "units"
    if a.negated != b.negated:
        return "negation"
    if a.turns(b) or b.turns(a):
        return "opposites"
    if _only_named_in(a, b) and _only_named_in(b, a):
        return "names"
    if a.asks and b.asks and a.asks != b.asks:
        return "asks"
    return None


def _only_named_in(a: Reading, b: Reading) -> list[str]:
    """Names of a that b has in no form: neither the word, nor another form of it, nor its initials."""
    said = b.names | frozenset(b.tokens)
    initials = "".join(token[0] for token in b.tokens)
    spelled_out = _spelled_out(a, b.names)
    return [
        name
        for name in a.names
        if name not in said
        and not (name.isalpha() and len(name) > 1 and name in initials)
        and name not in spelled_out
        and not any(word[:SAME_NAME] == name[:SAME_NAME] for word in said if len(name) >= SAME_NAME)
    ]


def _spelled_out(a: Reading, abbreviations: frozenset[str]) -> set[str]:
    """Names of a that are words of a run whose initials are one of the abbreviations."""
    initials = "".join(token[0] for token in a.tokens)
    places = [(initials.find(short), len(short)) for short in abbreviations if short.isalpha() and len(short) > 1]
    words = {word for start, length in places if start >= 0 for word in a.tokens[start : start + length]}
    return {name for name in a.names if any(name.startswith(word) for word in words)}


def kept_share(a: Reading, b: Reading) -> float:
    """Tokens that both have in the same order, of all their tokens; 1 for the same wording."""
    return SequenceMatcher(None, a.tokens, b.tokens, autojunk=False).ratio()


def _wording(a: Reading, b: Reading) -> str | None:
    if kept_share(a, b) < SAME_SENTENCE:
        return None
    if set(a.wording) != set(b.wording):
        return "words"
    return None if a.wording == b.wording else "order"
