"""Whether two Chinese questions differ in something that an answer depends on.

Who asks for another thing mostly keeps the sentence and changes a word; who asks for the same in other words changes
the way to ask first, then the rest. So a changed word counts where the way to ask is the same to the letter and a good
part of the sentence too, or where most of the sentence is the same once ways to ask are. Otherwise only what is read as
a number, unit, negation, opposite, name, kind of answer or direction keeps two questions apart.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from core_engine.answer_cache.gate.chinese import ChineseReading
from core_engine.answer_cache.gate.chinese_asking import ASKING, agree, may_agree

# Share of common tokens in common order, of all, from which on two questions are one sentence with a change in it:
SAME_WAY = 0.3  # of those as written, where both ask in the same words
SAME_SENTENCE = 0.51  # of those with ways to ask in one form
# Sentence vectors of unrelated questions lie closer together in Chinese than in English. So a distance counts for more,
# and for more still where nothing says that two questions want one kind of answer.
DENSE = 1.16
UNSURE = 1.38
# Words between two things that make one of them the source and the other one the target, the doer or the measure.
DIRECTED = re.compile("[到成给比换向往转打撞咬欠借送赢带管输升退降]|属于|包含|等于|兑|折合")
MOST_PIECES = 8  # more than a question has that stand round such a word
PERSONS = frozenset("我你他她谁")
# Marks of ways to ask that stand for no part of the sentence, and so may stand anywhere in it.
MOVABLE = frozenset({"<definition>", "<difference>", "<method>", "<reason>", "<whether>", "<definition|reason>"})
# Characters that name nothing by themselves.
EMPTY = frozenset(
    "的了呢在里把被给跟和与及或就都也还才又很太最该应要会能可以让使从对于个这那有没不想去来过得时候后前上下中为之其而且但如果话"
    "每次一是"
)


def chinese_difference(a: ChineseReading, b: ChineseReading) -> str | None:
    """See `difference`."""
    return _typed(a, b) or _wording(a, b)


def chinese_stretch(a: ChineseReading, b: ChineseReading) -> float:
    """What a distance between the two is multiplied by to be compared with one in English."""
    return DENSE if agree(a.asks, b.asks) else UNSURE


def _typed(a: ChineseReading, b: ChineseReading) -> str | None:
    if set(a.numbers) - set(b.numbers) and set(b.numbers) - set(a.numbers):
        return "numbers"
    if a.units and b.units and a.units != b.units:
        return "units"
    if _denies(a, b) or _denies(b, a):
        return "negation"
    if a.turns(b) or b.turns(a):
        return "opposites"
    if _only_named_in(a, b) and _only_named_in(b, a):
        return "names"
    return None if may_agree(a.asks, b.asks) else "asks"


def _denies(a: ChineseReading, b: ChineseReading) -> bool:
    """Whether a denies what b says, in which nothing is amiss."""
    return not b.lacking and any(word in b.asking.rest for word in a.denied)


def _only_named_in(a: ChineseReading, b: ChineseReading) -> frozenset[str]:
    return a.names - b.names - frozenset(b.tokens)


def _share(a: tuple[str, ...], b: tuple[str, ...]) -> float:
    """The same whichever comes first, which the matcher alone does not promise."""
    one, other = sorted((a, b))
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _wording(a: ChineseReading, b: ChineseReading) -> str | None:
    same_way = a.asking.words == b.asking.words and _share(a.tokens, b.tokens) >= SAME_WAY
    if same_way or _share(a.wording, b.wording) >= SAME_SENTENCE:
        if set(a.wording) != set(b.wording):
            return "words"
        return None if _fixed(a.wording) == _fixed(b.wording) or _compares(a) else "order"
    return "order" if _exchanged(a, b) or _reversed(a.tokens, b.tokens) else None


def _fixed(wording: tuple[str, ...]) -> list[str]:
    """Without the ways to ask that stand for no part of the sentence and so may stand anywhere in it."""
    return [token for token in wording if token not in MOVABLE]


def _compares(a: ChineseReading) -> bool:
    """Whether it asks for the difference of two things, which has no order."""
    return "difference" in a.asks and "和" in a.wording


def _exchanged(a: ChineseReading, b: ChineseReading) -> bool:
    """Whether either asks for the number or identity of what the other says something about."""
    only_a, only_b = a.asking.things - b.asking.things, b.asking.things - a.asking.things
    return any(thing in b.asking.rest for thing in only_a) and any(thing in a.asking.rest for thing in only_b)


def _reversed(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two things stand the other way round on both sides of a word that directs one to the other."""
    pieces = _common_pieces(a, b)
    return any(
        _directed(a[first[0] + first[2] : second[0]], b[second[1] + second[2] : first[1]])
        or all(a[piece[0]] in PERSONS and piece[2] == 1 for piece in (first, second))
        for first in pieces
        for second in pieces
        if first[0] < second[0] and first[1] > second[1]
    )


def _directed(between_a: tuple[str, ...], between_b: tuple[str, ...]) -> bool:
    return all(DIRECTED.search("".join(between)) for between in (between_a, between_b))


def _common_pieces(a: tuple[str, ...], b: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """(place in a, place in b, tokens) of the longest runs that both have, each token in one of them at most, down to
    those that name nothing; MOST_PIECES at most."""
    left, right = list(a), list(b)
    pieces: list[tuple[int, int, int]] = []
    for _ in range(MOST_PIECES):
        found = SequenceMatcher(None, left, right, autojunk=False).find_longest_match()
        if not found.size or not _names_something(left[found.a : found.a + found.size]):
            break
        pieces.append((found.a, found.b, found.size))
        left[found.a : found.a + found.size] = [f"<left {found.a}>"] * found.size
        right[found.b : found.b + found.size] = [f"<right {found.b}>"] * found.size
    return pieces


def _names_something(tokens: list[str]) -> bool:
    text = "".join(tokens)
    return (
        text.isascii()
        or text in PERSONS
        or (len(tokens) > 1 and not EMPTY.issuperset(tokens) and not ASKING.fullmatch(text))
    )
