"""How many tokens each chunk of an answer has. A chunk is not a token: servers that speculate send several at once.

From the surest: the server's own count at each chunk; log-probabilities, one a token; one a chunk where the server's
total says the same; the model's tokenizer over the text; the total spread over the chunks by their bytes; one a chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from experiments.targets.stream import Answer, Chunk

BY_USAGE = "usage of each chunk"
BY_LOGPROBS = "log-probabilities"
ONE_EACH = "one a chunk, the total agrees"
BY_TOKENIZER = "the model's tokenizer"
SPREAD = "the total, spread over chunks by bytes"
ASSUMED = "one a chunk, assumed"


def emissions(answer: Answer, tokenizer: Any = None) -> tuple[list[list[int]], str | None]:
    """([[time in ns, tokens], ...], how they were counted) of an answer; None without text.

    The first emission is the first chunk with text; tokens before it (a character not complete yet) are its. After it a
    chunk without text is one too where the server counts tokens in it. Otherwise only chunks with text are, and a last
    token without (the end of the answer) is in the server's total alone. tokenizer: the model's, None if not known.
    """
    shown = [chunk for chunk in answer.chunks if chunk.text]
    if not shown:
        return [], None
    told = _by_usage(answer.chunks)
    if told is not None:
        return told, BY_USAGE
    counts, how = _counts(answer, shown, tokenizer)
    return [[chunk.at_ns, count] for chunk, count in zip(shown, counts, strict=True) if count], how


def _counts(answer: Answer, shown: list[Chunk], tokenizer: Any) -> tuple[list[int], str]:
    total = answer.usage_count("completion_tokens") or None
    if all(chunk.tokens is not None for chunk in shown):
        return [chunk.tokens or 0 for chunk in shown], BY_LOGPROBS
    if total is not None and total - len(shown) in (0, 1):
        return [1] * len(shown), ONE_EACH
    cut = None if tokenizer is None else _by_tokenizer(shown, tokenizer)
    if cut is not None and (total is None or total - sum(cut) in (0, 1)):
        return cut, BY_TOKENIZER
    if total is not None:
        return _spread(shown, total), SPREAD
    return [1] * len(shown), ASSUMED


def _by_usage(chunks: Sequence[Chunk]) -> list[list[int]] | None:
    """[[time, tokens], ...] by the rise of the totals; None where a chunk with text has no total, or none rises."""
    found: list[list[int]] = []
    counted, begun = 0, False
    for chunk in chunks:
        begun = begun or bool(chunk.text)
        if chunk.total is None:
            if chunk.text:
                return None
        elif begun and chunk.total > counted:
            found.append([chunk.at_ns, chunk.total - counted])
            counted = chunk.total
    return found or None


def _by_tokenizer(shown: list[Chunk], tokenizer: Any) -> list[int] | None:
    """A token belongs to the chunk in which its last byte lies. None for a tokenizer whose tokens have no bytes."""
    sizes = getattr(tokenizer, "token_bytes", None)
    if sizes is None:
        return None
    lengths = [len(sizes[token]) for token in tokenizer.encode("".join(chunk.text for chunk in shown))]
    places = list(accumulate(length for length in lengths if length))  # a mark of the beginning has no bytes
    return _differences([bisect_right(places, end) for end in _ends(shown)])


def _spread(shown: list[Chunk], total: int) -> list[int]:
    """At least one in the first chunk, which has the first token; the rest in proportion to bytes."""
    ends = _ends(shown)
    return _differences([max(1, total * end // ends[-1]) for end in ends])


def _ends(shown: list[Chunk]) -> list[int]:
    return list(accumulate(len(chunk.text.encode()) for chunk in shown))


def _differences(rising: Sequence[int]) -> list[int]:
    return [after - before for before, after in zip([0, *rising], rising, strict=False)]
