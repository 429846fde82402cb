"""Quantities as people type them: a number with a unit, in English or Chinese, turned into the unit that was asked for.

A number alone is in the unit that was asked for. GB is 10^9 bytes and GiB 2^30, always; what leaves that open ("16 G",
"16 Gb") is refused, because it is one of the mistakes that a reader is here to lose. Knows no question and no grading.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from ledger.errors import InputError

MOST_CHARACTERS = 200
# Words that stand for a power of ten, between the number and its unit.
SCALES = {
    "万亿": 1e12, "千亿": 1e11, "百亿": 1e10, "十亿": 1e9, "亿": 1e8, "千万": 1e7, "百万": 1e6, "十万": 1e5, "万": 1e4,
    "千": 1e3, "trillion": 1e12, "billion": 1e9, "million": 1e6, "thousand": 1e3, "bn": 1e9,
}  # fmt: skip
# Letters that do the same where no byte or FLOP is counted.
LETTERS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_PREFIXES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def _bytes() -> dict[str, float]:
    found = {"B": 1.0, "byte": 1.0, "bytes": 1.0, "字节": 1.0, "bit": 0.125, "bits": 0.125, "比特": 0.125}
    for power, letter in enumerate("KMGTP", start=1):
        found |= {f"{letter}B": 1000.0**power, f"{letter}iB": 1024.0**power, f"{letter}bit": 1000.0**power / 8}
    return found


def _rates(units: Mapping[str, float], endings: tuple[str, ...] = ("/s", "/秒", " per second")) -> dict[str, float]:
    return {f"{unit}{ending}": size for unit, size in units.items() for ending in endings}


_TIMES = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "秒": 1.0, "ms": 1e-3, "毫秒": 1e-3,
    "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "微秒": 1e-6, "ns": 1e-9, "纳秒": 1e-9, "min": 60.0, "mins": 60.0,
    "minute": 60.0, "minutes": 60.0, "分钟": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0,
    "hours": 3600.0, "小时": 3600.0, "day": 86400.0,
    "days": 86400.0, "天": 86400.0,
}  # fmt: skip
_TOKENS = dict.fromkeys(("token", "tokens", "tok", "个token", "个 token"), 1.0)
_REQUESTS = dict.fromkeys(("request", "requests", "req", "reqs", "请求", "个请求", "次", "次请求"), 1.0)
_FLOPS = {f"{prefix}FLOP{ending}": size for prefix, size in (("", 1.0), *_PREFIXES.items()) for ending in ("", "s")}
_MONEY = dict.fromkeys(("$", "usd", "dollar", "dollars", "美元", "美金", "€", "eur", "¥", "cny", "rmb", "元"), 1.0)
# What can be counted; a line each of what may be said for one another. Cards are no layers.
_COUNTED = (
    ("card", "cards", "gpu", "gpus", "device", "devices", "张", "张卡", "卡", "块卡", "台", "个"),
    ("sequence", "sequences", "seq", "seqs", "路", "条", "条序列", "个序列", *_REQUESTS, "个"),
    ("expert", "experts", "个专家", "个"),
    ("layer", "layers", "层"),
    ("block", "blocks", "块", "个块", "个"),
    ("step", "steps", "步", "pass", "passes", "次前向", "次"),
    ("head", "heads", "头", "个头", "个"),
    ("instance", "instances", "实例", "个实例", "个"),
    ("point", "points", "百分点", "个百分点"),
    ("card-hour", "card-hours", "卡时"),
)
_PER_BIT_ELEMENT = ("/element", " per element", "/elem", "/元素", "/个元素")

# Dimension -> unit -> its size in the dimension's base unit.
DIMENSIONS: dict[str, dict[str, float]] = {
    "bytes": _bytes(),
    "seconds": _TIMES,
    "bytes/s": {
        **_rates(_bytes()), "Gbps": 1e9 / 8, "Mbps": 1e6 / 8, "GBps": 1e9, "Gb/s": 1e9 / 8, "Mb/s": 1e6 / 8,
    },
    "tokens/s": {**_rates(_TOKENS), "t/s": 1.0, "tps": 1.0, "个/s": 1.0, "个/秒": 1.0},
    "requests/s": {**_rates(_REQUESTS), "rps": 1.0, "qps": 1.0, "/s": 1.0},
    "FLOP": _FLOPS,
    "FLOP/s": {**_rates(_FLOPS), **{f"{prefix}FLOPS": size for prefix, size in (("", 1.0), *_PREFIXES.items())}},
    "FLOP/B": dict.fromkeys(("FLOP/B", "FLOPs/B", "FLOP/byte", "FLOPs/byte", "op/byte", "FLOP/字节"), 1.0),
    "bits/element": {
        f"{unit}{ending}": 1.0 for unit in ("bit", "bits", "比特", "位") for ending in ("", *_PER_BIT_ELEMENT)
    },
    "ratio": {"": 1.0, "x": 1.0, "×": 1.0, "倍": 1.0, "times": 1.0, "%": 0.01, "percent": 0.01},
    "money": _MONEY,
    "tokens": _TOKENS,
    "count": {unit: 1.0 for same in _COUNTED for unit in same},
}  # fmt: skip
# What money and bytes are often said to be for: the question has said it, so the answer may or may not.
_PER = re.compile(
    r"\s*(?:/|per |a |每)\s*(?:1?\s*(?:m|million|百万)\s*(?:个)?\s*(?:output )?tokens?|token|tok|month|月|个月|sequence"
    r"|seq|rank|卡|card|device|request|请求|次请求|step|步)$",
    re.IGNORECASE,
)
_SIGNS_BEFORE = re.compile(
    r"^(?:about|approximately|approx\.?|roughly|around|大约|约为|约|差不多|是|[=~≈])\s*", re.IGNORECASE
)
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)"
    r"(?P<power>\s*[x*×]\s*10\s*(?:\^|\*\*)\s*[+-]?\d+|[eE][+-]?\d+)?"
)
_AMBIGUOUS = re.compile(r"^(?:[KMGTPkmgtp]|[KMGTP]b)$")


@dataclass(frozen=True)
class Quantity:
    """A number in the base unit of its dimension, and the unit that it was written in ("" for none: the asked one)."""

    value: float
    dimension: str
    written_unit: str

    def in_unit(self, unit: str) -> float:
        """The number in another unit of the same dimension."""
        return self.value / _size(self.dimension, unit)


def dimension_of(unit: str) -> str:
    """The dimension that a unit measures; InputError for a unit that is not known."""
    for dimension, units in DIMENSIONS.items():
        if unit in units:
            return dimension
    raise InputError("unit", unit, ", ".join(next(iter(units)) for units in DIMENSIONS.values()))


def parse_quantity(text: str, unit: str, field: str = "answer") -> Quantity:
    """The quantity that `text` states, where one in `unit` was asked for: "17.2 GB", "1.3 万", "$12", "70 %", "1.5x".

    A number without a unit is in `unit`. InputError for text that is no number, a unit of something else, or one that
    can be read in two ways ("G" of bytes: 10^9 or 2^30; "1,5").
    """
    dimension = dimension_of(unit)
    plain = _plain(text)
    money = re.match(r"^[$€¥]\s*", plain)
    before = money[0].strip() if money else ""
    if before and dimension != "money":
        raise InputError(field, _short(text), f"a number, such as 12.5 {unit}")
    plain = plain[len(money[0]) :] if money else plain
    found = _NUMBER.match(plain)
    if len(text) > MOST_CHARACTERS or found is None:
        raise InputError(field, _short(text), f"a number, such as 12.5 {unit}".rstrip())
    number = _number(found)
    rest = plain[found.end() :].strip()
    scale, written = _scaled(rest, dimension)
    written = written or before
    value = number * scale * _size(dimension, _known(written, dimension, unit, text, field))
    if not math.isfinite(value):
        raise InputError(field, _short(text), f"a number that can be computed with, such as 12.5 {unit}".rstrip())
    return Quantity(value, dimension, written)


def parse_in(text: str, unit: str, field: str = "answer") -> float:
    """The number that `text` states, in `unit`. InputErrors as parse_quantity."""
    return parse_quantity(text, unit, field).in_unit(unit)


def _plain(text: str) -> str:
    """Full-width and raised signs as ASCII (10⁹ is 1e9), and without the words before a number."""
    marked = re.sub("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda raised: f"^{raised[0]}", text.replace("μ", "µ"))
    plain = unicodedata.normalize("NFKC", marked).replace("μ", "µ").replace("−", "-").strip().rstrip("。.").strip()
    while (shorter := _SIGNS_BEFORE.sub("", plain)) != plain:
        plain = shorter
    plain = re.sub(r"^([+-]?)10\s*(?:\^|\*\*)\s*([+-]?\d+)", r"\g<1>1e\2", plain)
    return re.sub(r"^([+-])\s*([$€¥])\s*", r"\2\1", plain)


def _number(found: re.Match[str]) -> float:
    digits, power = found["digits"].replace(",", ""), found["power"] or ""
    exponent = re.sub(r"\s+", "", power)
    exponent = re.sub(r"^(?:[x*×]10(?:\^|\*\*)|[eE])", "", exponent)
    return float(f"{found['sign']}{digits}e{exponent or 0}")


def _scaled(rest: str, dimension: str) -> tuple[float, str]:
    """(power of ten, unit) of what follows a number."""
    for word, size in SCALES.items():
        if rest.lower().startswith(word):
            after = rest[len(word) :].strip()
            return (size, after) if not after or not word.isascii() or rest[len(word)] == " " else (1.0, rest)
    if dimension in ("tokens", "count", "money", "tokens/s", "requests/s") and rest[:1] in LETTERS:
        after = rest[1:]
        if not after or after[0] == " " or not after[0].isascii() or after[0] == "/":
            return LETTERS[rest[0]], after.strip()
    return 1.0, rest


def _known(written: str, dimension: str, asked: str, text: str, field: str) -> str:
    """The dimension's own spelling of a unit; the asked one when none was written."""
    units = DIMENSIONS[dimension]
    if dimension == "count":
        units = dict.fromkeys(next(same for same in _COUNTED if asked in same), 1.0)
    plain = _spelled(written, units)
    if plain is None:
        plain = _spelled(_PER.sub("", written), units)
    if plain is not None:
        return plain or asked
    if dimension.startswith("bytes") and _AMBIGUOUS.match(written.partition("/")[0]):
        letter = written[0].upper()
        raise InputError(field, _short(text), f"{letter}B (powers of 1000), {letter}iB (of 1024) or {letter}bit")
    raise InputError(field, _short(text), f"a number in {asked or 'times or %'}, or in another unit of the same kind")


def _spelled(written: str, units: Mapping[str, float]) -> str | None:
    """A unit as it is spelled here, whatever its letter case and blanks; "" for none, None for an unknown one."""
    if written in units or not written:
        return written
    if _AMBIGUOUS.match(written):
        return None
    folded = re.sub(r"per ?second|/second|/sec\b", "/s", written.lower())
    folded = re.sub(r"\s+", "", folded)
    return next((unit for unit in units if re.sub(r"\s+", "", unit).lower() == folded), None)


def _size(dimension: str, unit: str) -> float:
    found = DIMENSIONS[dimension].get(unit)
    if found is None:
        raise InputError("unit", unit, f"a unit of {dimension}")
    return found


def _short(text: str) -> str:
    return text.strip()[:60]
