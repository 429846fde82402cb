"""Prompt compression: a shorter prompt made of sentences of the long one, in English and Chinese.

Extractive, so that nothing is in it that was not in the prompt. Of every part of a prompt its first piece (which says
what to do; a role's name or an empty line is none), its last one and what is asked are kept as they are; every number
of the text occurs in what is left. The other pieces compete for the room: how much of the question they speak of
(terms that few pieces have count more), how frequent their terms are in the whole, and how early they stand. The
weights are a choice, fixed before anything was measured with them; nothing was tuned on the items that judge it.

Parts of a chat prompt are what stands between special tokens. Those before the last are shortened without a look at
the question, so that a preamble that many requests share stays the same for all of them and the prefix cache finds it.
Where preamble and question are one part, each question makes another preamble of it.

Knows texts and a tokenizer, no engine.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

LEAST_SIZE = 48  # words, or Chinese characters: a shorter part stays as it is
LONGEST_PIECE = 40  # a longer sentence competes clause by clause
OF_QUESTION, OF_FREQUENCY, OF_PLACE = 0.6, 0.3, 0.1
LEAST_TOLD = 2  # words of a piece or a part that says something: a role's name is shorter

_SENTENCE = re.compile(r"(?<=[。！？；\n])|(?<=[.!?])(?=\s)")
_CLAUSE = re.compile(r"(?<=[，、：])|(?<=[,;:])(?=\s)")
_UNIT = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:[.,:]\d+)*")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_COMMON_WORDS = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its me more my no
not of on or our out over she he so some than that the their them then there these they this to under up us was we were
what when where which who why will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_COMMON_HAN = frozenset("的了是在和与也就都而及着或个这那有为于之其以被把从对吗呢吧啊么")


def shortened(text: str, keep: float, question: str = "") -> str:
    """`text` with about `keep` (a share above 0 up to 1) of its words or Chinese characters, in its own order.

    More is left where numbers, the first and the last piece, and pieces of `question` take more.
    """
    pieces = list(_pieces(text))
    sizes = [_size(piece) for piece in pieces]
    total = sum(sizes)
    if keep >= 1 or total < LEAST_SIZE:
        return text
    told = [place for place, size in enumerate(sizes) if size >= LEAST_TOLD]
    chosen = {0, *told[:1], *told[-1:], len(pieces) - 1}
    chosen |= {place for place, piece in enumerate(pieces) if _is_of(piece, question)}
    room = keep * total - sum(sizes[place] for place in chosen)
    scores = _scores(pieces, question)
    known = {pieces[place].strip() for place in chosen}
    for place in sorted(range(len(pieces)), key=lambda place: -scores[place]):
        if place in chosen or sizes[place] > room or pieces[place].strip() in known:
            continue
        chosen.add(place)
        known.add(pieces[place].strip())
        room -= sizes[place]
    return "".join(_with_numbers(pieces, chosen))


def asked_in(text: str) -> str:
    """What a text asks: its sentences with a question mark, else its last sentence."""
    sentences = [piece for piece in _SENTENCE.split(text) if piece.strip()]
    return "".join([piece for piece in sentences if piece.rstrip().endswith(("?", "？"))] or sentences[-1:])


def _pieces(text: str) -> Iterator[str]:
    """Sentences, long ones as clauses; joined they are the text."""
    for sentence in _SENTENCE.split(text):
        yield from filter(None, _CLAUSE.split(sentence) if _size(sentence) > LONGEST_PIECE else [sentence])


def _size(text: str) -> int:
    return len(_UNIT.findall(text))


def _is_of(piece: str, question: str) -> bool:
    return bool(piece.strip()) and piece.strip() in question


def _terms(text: str) -> list[str]:
    """Words that carry meaning; of Chinese, pairs of neighbouring characters."""
    lower = text.lower()
    words = [word for word in _UNIT.findall(lower) if word not in _COMMON and not _HAN.match(word)]
    for run in _HAN.findall(lower):
        told = [char for char in run if char not in _COMMON_HAN]
        words += ["".join(pair) for pair in pairwise(told)] or told
    return words


def _scores(pieces: Sequence[str], question: str) -> list[float]:
    """How much each piece matters, 0 to 1."""
    terms = [_terms(piece) for piece in pieces]
    counts = Counter(term for each in terms for term in each)
    holders = Counter(term for each in terms for term in set(each))
    rarity = {term: math.log(1 + len(pieces) / held) for term, held in holders.items()}
    asked = {term for term in _terms(question) if term in rarity}
    weight = sum(rarity[term] for term in asked)
    frequency = [sum(counts[term] for term in each) / len(each) if each else 0.0 for each in terms]
    highest = max(frequency, default=0.0) or 1.0
    return [
        OF_QUESTION * (sum(rarity[term] for term in asked & set(each)) / weight if weight else 0.0)
        + OF_FREQUENCY * often / highest
        + OF_PLACE / (1 + place)
        for place, (each, often) in enumerate(zip(terms, frequency, strict=True))
    ]


def _with_numbers(pieces: Sequence[str], chosen: set[int]) -> Iterator[str]:
    """The chosen pieces, and of the others the clauses with a number that is nowhere else in what is left."""
    known = {number for place in chosen for number in _NUMBER.findall(pieces[place])}
    for place, piece in enumerate(pieces):
        if place in chosen:
            yield piece
            continue
        for clause in _CLAUSE.split(piece):
            new = set(_NUMBER.findall(clause)) - known
            if new:
                known |= new
                yield clause


@dataclass(frozen=True)
class PromptCompressor:
    """Shortens prompts of token ids. `keep`: the share that is aimed at."""

    tokenizer: Any
    keep: float

    def shorten(self, ids: Sequence[int]) -> list[int]:
        """The ids of the shorter prompt; `ids` themselves where nothing is gained. Special tokens stay as they are."""
        parts = list(self._parts(ids))
        texts = [self.tokenizer.decode(part) if plain else "" for part, plain in parts]
        asking = max((place for place, text in enumerate(texts) if _size(text) >= LEAST_TOLD), default=None)
        found: list[int] = []
        for place, ((part, _), text) in enumerate(zip(parts, texts, strict=True)):
            shorter = shortened(text, self.keep, asked_in(text) if place == asking else "")
            found += part if shorter == text else self._encode(shorter)
        return found if len(found) < len(ids) else list(ids)

    def _parts(self, ids: Sequence[int]) -> Iterator[tuple[list[int], bool]]:
        """(ids, whether they are text) of each run between special tokens."""
        part: list[int] = []
        for token in ids:
            if self._is_text(token):
                part.append(token)
                continue
            if part:
                yield part, True
            yield [token], False
            part = []
        if part:
            yield part, True

    def _is_text(self, token: int) -> bool:
        known = self.tokenizer.token_bytes
        return bool(known[token] if known is not None else self.tokenizer.decode([token]))

    def _encode(self, text: str) -> list[int]:
        """Ids of a part; a mark of the beginning, if the tokenizer writes one, stands before the first part already."""
        begins, ids = len(self.tokenizer.encode("")), list(self.tokenizer.encode(text))
        return ids[begins:]
