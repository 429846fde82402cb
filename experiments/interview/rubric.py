"""Open answers against key points, by key terms: what a page can check without a model, and no more than that.

A point is found when one sentence has all parts of one of its patterns. A pattern is parts joined by " & ", a part is
spellings joined by "|", in English and Chinese alike, since engineers mix them. A part that is denied right before it
("not compute-bound", "不是算力受限") does not count, unless it begins with "~": "no slot is idle" says as much about
idle slots as "slots are idle". Terms are searched, nothing is understood: see `say.limits`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

FOUND, MISSING, DENIED = "found", "missing", "denied"
EITHER_WAY = "~"
_SENTENCE = re.compile(r"[。！？；!?;\n]+|\.(?=\s|$)")
# A denial at most a few words before a term; "not only" and "不仅" deny nothing, and "but" ends a denial.
_DENIED = re.compile(
    r"\b(?:not(?! only\b)|never|no|cannot|without|neither|nor|hardly|\w+n['’]t)\b"
    r"(?:[\s,'\"(]+(?!but\b|rather\b)[\w-]+){0,2}[\s,'\"(]*$"
    r"|(?:并不是|并不|并非|不是|不会|不能|不再|(?<!有)没有|无法|不(?![仅只但光过同断如论管均必够足达])|未(?!来)|无(?![论损偏]))"
    r"(?:(?!而)[^，,。]){0,3}$"
)

Patterns = tuple[str, ...]


@dataclass(frozen=True)
class Rubric:
    """points: name -> patterns of which one has to be found. wrong: name -> patterns of a statement that is wrong.
    needed: points for a pass.
    """

    points: Mapping[str, Patterns]
    wrong: Mapping[str, Patterns]
    needed: int


@dataclass(frozen=True)
class OpenGrade:
    """points: name -> found, missing or denied. wrong: names of wrong statements found. credit: 0 to 1."""

    points: Mapping[str, str]
    wrong: tuple[str, ...]
    needed: int

    @property
    def covered(self) -> int:
        """Points found."""
        return sum(state == FOUND for state in self.points.values())

    @property
    def passed(self) -> bool:
        """Enough points and nothing wrong."""
        return self.covered >= self.needed and not self.wrong

    @property
    def credit(self) -> float:
        """Share of the points; half of it where something wrong was said."""
        return self.covered / len(self.points) / (2 if self.wrong else 1)


def grade(rubric: Rubric, answer: str) -> OpenGrade:
    """Grade an answer, in either language."""
    sentences = _sentences(answer)
    points = {name: _state(patterns, sentences) for name, patterns in rubric.points.items()}
    clauses = [clause for sentence in sentences for clause in re.split("[,，]", sentence)]  # one may be about another
    wrong = tuple(name for name, patterns in rubric.wrong.items() if _state(patterns, clauses) == FOUND)
    return OpenGrade(points, wrong, rubric.needed)


def _sentences(answer: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", answer.replace("。", "。\n")).lower()
    return [sentence.strip() for sentence in _SENTENCE.split(plain) if sentence.strip()]


def _state(patterns: Patterns, sentences: list[str]) -> str:
    denied = False
    for sentence in sentences:
        for pattern in patterns:
            hits = [_hits(part, sentence) for part in pattern.split(" & ")]
            if all(hits):
                if all(any(not at_denied for at_denied in part) for part in hits):
                    return FOUND
                denied = True
    return DENIED if denied else MISSING


def _hits(part: str, sentence: str) -> list[bool]:
    """For every place where one of the spellings stands, whether it is denied there."""
    said = part.removeprefix(EITHER_WAY)
    counts = said != part
    return [not counts and bool(_DENIED.search(sentence[: at.start()])) for at in _finder(said).finditer(sentence)]


@cache
def _finder(part: str) -> re.Pattern[str]:
    spellings = [_spelling(text.strip()) for text in part.split("|")]
    return re.compile("|".join(spellings))


def _spelling(text: str) -> str:
    """A term from the beginning of a word on, whatever stands between its words: "split kv" is "split-KV" too."""
    plain = unicodedata.normalize("NFKC", text).lower()
    found = r"[\s-]*".join(re.escape(word) for word in re.split(r"[\s-]+", plain))
    return rf"(?<![a-z0-9]){found}" if plain[0].isascii() and plain[0].isalnum() else found
