"""Numbers and units in Chinese text, in both scripts: 一百二十, 120; 130亿, 13B; 两张, 半小时."""

from __future__ import annotations

import re
from decimal import Decimal

NUMERALS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
SUFFIXES = {"k": 1000, "K": 1000, "B": 10**9, "千": 1000, "万": 10_000, "亿": 100_000_000, "": 1}
_SIGN = r"(?<![A-Za-z0-9_)\]])[-−]"  # not the dash of "3-5" or "part-2"
_PLAIN = r"(?<![\[(,\d])\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"  # [1,100] is two numbers, 1,100 is one
DIGITS = re.compile(rf"({_SIGN}|)({_PLAIN})(?:([kKB](?![A-Za-z])|[千万亿](?![米克瓦]))|)")
SPELLED = re.compile(r"第?[零〇一二两三四五六七八九十百千万亿]+")
NO_NUMBER = re.compile(
    "一下|一样|一些|一般|一直|一起|一定|一共|一旦|一边|一点|一次性|统一|唯一|万一|之一|十分|千万(?!元)|四川|三明治|一会"
    "|三角|四边|两边|两者|年级|半径|四季|五官|七夕|九寨|三亚|百科|千瓦|千米|千克|万能"
)
HALF = re.compile(r"半个?(?:小时|钟头|月|年|斤|价|学期)|(?:[个年月天点倍]|小时)半")
UNITS = {
    "公里": "km", "千米": "km", "英里": "mile", "米": "m", "厘米": "cm", "毫米": "mm", "公斤": "kg", "千克": "kg",
    "克": "g", "斤": "jin", "磅": "lb", "秒": "s", "分钟": "min", "小时": "h", "天": "day", "周": "week",
    "星期": "week", "个月": "month", "年": "year", "摄氏": "°c", "华氏": "°f", "元": "yuan", "美元": "$",
    "欧元": "€", "英镑": "gbp", "毫升": "ml", "升": "l",
}  # fmt: skip
COUNTED = re.compile(rf"[\d零〇一二两三四五六七八九十百千万亿半]\s*({'|'.join(sorted(UNITS, key=len, reverse=True))})")


def numbers(text: str) -> list[str]:
    """Values of the numbers in a text, however they are written, in no order. 一 alone is left out: it is an article
    as often as a number."""
    found = [_scaled(*match) for match in DIGITS.findall(text)]
    spelled = NO_NUMBER.sub(" ", DIGITS.sub(" ", text).replace("百分之", ""))
    found += [value for number in SPELLED.findall(spelled) if number != "一" for value in _values(number)]
    return found + ["0.5"] * len(HALF.findall(text))


def units(text: str) -> frozenset[str]:
    """Units of measure behind a number."""
    return frozenset(UNITS[unit] for unit in COUNTED.findall(text))


def _scaled(sign: str, number: str, suffix: str) -> str:
    value = Decimal(number.replace(",", "")) * SUFFIXES[suffix]
    return f"{'-' if sign else ''}{value.normalize():f}"


def _values(spelled: str) -> list[str]:
    """The values of a run of numerals: one, or one a numeral where some stand side by side, as in 三四天 or 四六级."""
    plain = spelled.removeprefix("第")
    if len(plain) in (2, 3) and all(char in NUMERALS for char in plain):
        return [str(NUMERALS[char]) for char in plain]
    return [_value(plain)]


def _value(spelled: str) -> str:
    """The value of a number in Chinese numerals, with the scales multiplied out."""
    total = section = digit = 0
    for char in spelled:
        if char in NUMERALS:
            digit = digit * 10 + NUMERALS[char] if digit and "十" not in spelled else NUMERALS[char]
        elif SCALES[char] >= 10_000:
            total += (section + digit or 1) * SCALES[char]
            section = digit = 0
        else:
            section += (digit or 1) * SCALES[char]
            digit = 0
    return str(total + section + digit)
