"""How labs write numbers with units, and which they ask for. Reading what was typed is experiments/units.py's."""

from __future__ import annotations

from experiments import units

# What a lab's texts call otherwise than the reader of numbers does: money has no currency here.
_READ_AS = {"units": "$", "bits": "bits/element"}


def dimension_of(unit: str) -> str:
    """What a unit measures; InputError for one that is not known."""
    return units.dimension_of(_READ_AS.get(unit, unit))


def convert(value: float, from_unit: str, to_unit: str) -> float:
    """The same amount in another unit of its dimension; InputError across dimensions."""
    dimension = dimension_of(from_unit)
    read = units.Quantity(1.0, dimension, "")
    return value * read.in_unit(_READ_AS.get(to_unit, to_unit)) / read.in_unit(_READ_AS.get(from_unit, from_unit))


def parse_quantity(text: str, unit: str) -> float:
    """The number that was typed, in `unit`, which a number without one is in. InputErrors as units.parse_in."""
    plain = text.replace("−", "-").strip()
    return units.parse_in(plain.removesuffix(unit) if unit in _READ_AS else plain, _READ_AS.get(unit, unit))


# -- writing ---------------------------------------------------------------------------------------------------------


def say_quantity(value: float, unit: str, lang: str = "en") -> str:
    """The amount as a reader wants it: bytes in decimal and binary units, times in the unit that suits them."""
    dimension = dimension_of(unit)
    if dimension == "bytes":
        return _bytes(convert(value, unit, "B"))
    if dimension == "seconds":
        return _time(convert(value, unit, "s"))
    if dimension in ("bytes/s", "FLOP", "FLOP/s"):
        return _prefixed(value, unit)
    if unit == "x":
        return f"{plain_number(value)} 倍" if lang == "zh" else f"{plain_number(value)}×"
    if unit == "units" or not unit:
        return plain_number(value)
    return f"{plain_number(value)} {_UNITS_ZH.get(unit, unit) if lang == 'zh' else unit}"


_PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6}
_UNITS_ZH = {
    "requests": "个请求", "sequences": "条序列", "cards": "张卡", "blocks": "个块", "steps": "步", "passes": "次前向",
    "heads": "个头", "layers": "层", "instances": "个实例", "points": "个百分点", "bits": "位", "tokens": "个 token",
    "requests/s": "个请求/s", "card-hours": "卡时", "min": "分钟", "h": "小时", "days": "天",
}  # fmt: skip


def unit_name(unit: str, lang: str = "en") -> str:
    """What an answer is asked in, for a reader."""
    return (_ASKED_ZH if lang == "zh" else _ASKED).get(unit, unit)


_ASKED = {"x": "times", "units": "units of money"}
_ASKED_ZH = {
    "x": "倍", "tokens": "token", "requests": "个请求", "sequences": "条序列", "cards": "张卡", "blocks": "块",
    "steps": "步", "passes": "次前向", "heads": "个头", "layers": "层", "instances": "个实例", "points": "百分点",
    "bits": "位", "units": "货币单位", "requests/s": "请求/s", "card-hours": "卡时",
}  # fmt: skip


def plain_number(value: float) -> str:
    """Whole numbers in full, others with four significant digits."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _bytes(value: float) -> str:
    for decimal, binary, power in (("TB", "TiB", 4), ("GB", "GiB", 3), ("MB", "MiB", 2), ("kB", "KiB", 1)):
        if abs(value) >= 1000**power:
            if power == 1:
                return f"{value:,.0f} B ({value / 1024:,.4g} KiB)"
            return f"{value / 1000**power:,.4g} {decimal} ({value / 1024**power:,.4g} {binary})"
    return f"{value:,.4g} B"


def _prefixed(value: float, unit: str) -> str:
    """With the decimal prefix that leaves one to three digits before the point."""
    base = {"bytes/s": "B/s", "FLOP": "FLOP", "FLOP/s": "FLOP/s"}[dimension_of(unit)]
    value = convert(value, unit, base)
    prefix = next((prefix for prefix, size in _PREFIXES.items() if abs(value) >= size), "")
    return f"{plain_number(value / _PREFIXES.get(prefix, 1.0))} {prefix}{base}"


def _time(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value * 1e9:,.4g} ns"
