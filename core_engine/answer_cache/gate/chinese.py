"""Reading Chinese: characters one by one, digits and Latin words whole; numbers in both scripts, negation, opposites.

There is no dictionary: a changed word shows as changed characters, which the comparison of wordings sees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core_engine.answer_cache.gate.chinese_asking import TOKEN, Asking, asking
from core_engine.answer_cache.gate.chinese_numbers import numbers, units
from core_engine.answer_cache.gate.opposites import CHINESE
from core_engine.answer_cache.gate.question import Reading

LATIN = re.compile(r"(?<![\d.])[A-Za-z][A-Za-z0-9_.+-]*")
QUOTED = re.compile(r"[《“「『\"]([^》”」』\"]+)[》”」』\"]")
# Characters that may come and go in a sentence that otherwise stays.
SLACK = frozenset("的了呢吧啊呀么请您你是啦哦")
ALIKE = {"与": "和", "跟": "和"}  # characters that say the same between two things
# Words with a character of negation that deny nothing.
HARMLESS = re.compile(
    "不足|不舒服|不小心|不同|不过|不仅|不但|不管|不错|差不多|差别|别人|别的|特别|级别|分别|性别|区别|类别|识别|未成年|未来|未婚"
    "|没有?空|无线|无论|无人|非常|非洲|除非|至少|减少"
)
# A negation and what it denies, up to two characters, behind verbs that only lead there: 不想要发票.
NEGATION = re.compile("(?:不|没有?|无|未|别|勿)(?:[是会能可要想用再被])*((?![了的着过])[\u3400-\u9fff]{1,2})")
# Something is not, fails or is missing, whichever way that is said.
LACKING = re.compile("不|没|无|未|别|勿|丢|忘|缺|少|坏|停|取消|关|拒|错|失|免|禁|差")


@dataclass(frozen=True)
class ChineseReading(Reading):
    """asking: how it asks; denied: what stands right behind a negation; lacking: whether anything says that something
    is not, fails or is missing. Its names are Latin words with a capital or a digit, and what is quoted; Latin words in
    small letters have Chinese ones beside them."""

    asking: Asking
    denied: frozenset[str]
    lacking: bool


def read_chinese(text: str) -> ChineseReading:
    """See Reading."""
    asked = asking(text)
    said = HARMLESS.sub(" ", asked.rest)
    denied = frozenset(NEGATION.findall(said))
    proper = [word for word in LATIN.findall(text) if word != word.lower() or any(map(str.isdigit, word))]
    return ChineseReading(
        tokens=tuple(TOKEN.findall(text.lower())),
        wording=tuple(ALIKE.get(token, token) for token in asked.wording if token not in SLACK),
        numbers=tuple(sorted(numbers(text))),
        units=units(text),
        names=frozenset(name.lower() for name in [*proper, *QUOTED.findall(text)]),
        poles=frozenset(
            (pair, side) for pair, words in enumerate(CHINESE) for side, word in enumerate(words) if word in text
        ),
        asks=asked.kinds,
        negated=bool(denied),
        asking=asked,
        denied=denied,
        lacking=bool(LACKING.search(said)),
    )
