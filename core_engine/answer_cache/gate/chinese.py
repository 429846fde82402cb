"""Reading Chinese: characters one by one, digits and Latin words whole; numbers in both scripts, negation, opposites.

There is no word list: a changed word shows as changed characters, which the comparison of wordings sees.
"""

from __future__ import annotations

import re

from core_engine.answer_cache.gate.opposites import CHINESE
from core_engine.answer_cache.gate.question import BELOW_ZERO, Reading, with_signs

TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[A-Za-z][A-Za-z0-9_.+-]*|[\u3400-\u9fff]|[%+*/=<>°-]")
LATIN = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
QUOTED = re.compile(r"[《“「『\"]([^》”」』\"]+)[》”」』\"]")
# Ways to ask, each in one form: can one, how, why, how much.
ASKED_AS = tuple(
    (re.compile(words), form)
    for words, form in (
        ("请问|请帮我|麻烦", ""),
        ("可不可以|能不能|是否可以|可否|能否|可以|能够", "能"),
        (
            "有没有办法|有什么办法|有什么方法|用什么办法|用什么方法|怎么样才能|怎么才能|如何才能|怎么办|怎么样|怎样|如何|怎么|咋",
            "怎",
        ),
        ("为什么|什么原因|为何|为啥", "为何"),
        ("是多少|多少|几", "几"),
        ("啥", "什么"),
        ("是否", "是"),
    )
)
# Characters that may come and go in a sentence that otherwise stays.
SLACK = frozenset("的了吗呢吧啊呀么请问您你是啦哦")
A_NOT_A = re.compile(r"(.)[不没]\1")
# Words with a character of negation that deny nothing, and what can't be done, which is rarely what is asked.
HARMLESS = re.compile(
    ".不(?:着|住|到|起|清|了|出|见|动|开|上|下|好)|不见|不足|不舒服|不小心|不灵|不好|不同|差别|别人|未成年|没有?空|不过|不仅|不但|不管|不错|差不多|无线|无论|无人|未来|未婚|非常|非洲|除非|别的|特别|级别|分别|性别|区别|类别|识别"
)
NEGATIONS = re.compile("不|没|无|未|别|勿|非|除了|除外|以外")
NUMERALS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
SPELLED = re.compile(r"第?[零〇一二两三四五六七八九十百千万亿]+")
NO_NUMBER = re.compile(
    "一下|一样|一些|一般|一直|一起|一定|一共|一旦|一边|一点|一次性|一般|统一|唯一|万一|之一|十分|千万|四川|三明治|一会"
    "|三角|四边|两边|两者|年级|半径"
)
UNITS = {
    "公里": "km", "千米": "km", "英里": "mile", "米": "m", "厘米": "cm", "毫米": "mm", "公斤": "kg", "千克": "kg",
    "克": "g", "斤": "jin", "磅": "lb", "秒": "s", "分钟": "min", "小时": "h", "天": "day", "周": "week",
    "星期": "week", "个月": "month", "年": "year", "摄氏": "°c", "华氏": "°f", "元": "yuan", "美元": "$",
    "欧元": "€", "英镑": "gbp", "毫升": "ml", "升": "l",
}  # fmt: skip
COUNTED = re.compile(rf"[\d零〇一二两三四五六七八九十百千万亿半]\s*({'|'.join(sorted(UNITS, key=len, reverse=True))})")
ASKS = (
    ("为什么|为何|原因", "reason"),
    ("谁|哪位", "person"),
    ("什么时候|何时|几点|哪年|哪一年|哪天", "time"),
    ("哪里|哪儿|在哪", "place"),
)


def read_chinese(text: str) -> Reading:
    """See Reading."""
    plain = A_NOT_A.sub(r"\1", text.lower())
    for words, form in ASKED_AS:
        plain = words.sub(form, plain)
    spoken = HARMLESS.sub(" ", A_NOT_A.sub(r"\1", text))
    return Reading(
        tokens=tuple(TOKEN.findall(text.lower())),
        wording=tuple(token for token in TOKEN.findall(plain) if token not in SLACK),
        numbers=tuple(sorted(_numbers(text))),
        units=frozenset(UNITS[unit] for unit in COUNTED.findall(text)),
        names=frozenset(name.lower() for name in [*LATIN.findall(text), *QUOTED.findall(text)]),
        poles=frozenset(
            (pair, side) for pair, words in enumerate(CHINESE) for side, word in enumerate(words) if word in text
        ),
        asks=frozenset(kind for pattern, kind in ASKS if re.search(pattern, text)),
        negated=bool(NEGATIONS.search(spoken)),
    )


def _numbers(text: str) -> list[str]:
    digits = [number.replace(",", "") for number in re.findall(r"\d+(?:[.,]\d+)*", text)]
    found = with_signs(digits, (number.replace(",", "") for number in BELOW_ZERO.findall(text)))
    spelled = SPELLED.findall(NO_NUMBER.sub(" ", text.replace("百分之", "")))
    found += [_value(number) for number in spelled if number != "一"]  # alone it is an article as often as a number
    return found + ["0.5"] * text.count("半")


def _value(spelled: str) -> str:
    """The value of a number in Chinese numerals, with the scales multiplied out."""
    total = section = digit = 0
    for char in spelled.removeprefix("第"):
        if char in NUMERALS:
            digit = digit * 10 + NUMERALS[char] if digit and "十" not in spelled else NUMERALS[char]
        elif SCALES[char] >= 10_000:
            total += (section + digit or 1) * SCALES[char]
            section = digit = 0
        else:
            section += (digit or 1) * SCALES[char]
            digit = 0
    return str(total + section + digit)
