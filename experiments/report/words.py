"""Every text of the report, in English and Simplified Chinese, and how numbers are written.

The texts lie in words_en.toml and words_zh.toml, key by key in the same order.
"""

from __future__ import annotations

import math
import tomllib
from importlib.resources import files

from ledger.errors import InputError

LANGUAGES = ("en", "zh")
MISSING = "–"


def _texts() -> dict[str, tuple[str, ...]]:
    """Key -> its text in each of LANGUAGES. A key that one file lacks is a fault."""
    folder = files("experiments.report")
    by_language = [tomllib.loads(folder.joinpath(f"words_{lang}.toml").read_text("utf-8")) for lang in LANGUAGES]
    return {key: tuple(texts[key] for texts in by_language) for key in by_language[0] | by_language[1]}


WORDS = _texts()


class Words:
    """The texts of one language; InputError for a language that is not there."""

    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise InputError("lang", lang, ", ".join(LANGUAGES))
        self.lang = lang
        self._place = LANGUAGES.index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key` with its placeholders filled in."""
        return WORDS[key][self._place].format(**values)

    def listed(self, items: list[str]) -> str:
        """The items as one enumeration."""
        return self("list_join").join(items)


def signed_percent(value: float | None) -> str:
    """+107 %, −0.3 %, 0 %: a true minus, one decimal below 10; a dash for no value."""
    if value is None:
        return MISSING
    size = abs(value)
    text = f"{size:,.0f}" if size >= 10 else f"{size:.1f}"
    if float(text.replace(",", "")) == 0:
        return "0 %"
    return f"{'+' if value > 0 else '−'}{text} %"


def percent(value: float | None) -> str:
    """3 %, 1.5 %: without a sign."""
    return MISSING if value is None else f"{value:.3g} %"


def interval(bounds: list[float] | None) -> str:
    """[+96, +117] in %, a dash for none."""
    if bounds is None:
        return MISSING
    return "[" + ", ".join(signed_percent(bound).removesuffix(" %") for bound in bounds) + "]"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands separated and never in powers of ten above 1e-4."""
    if value is None:
        return MISSING
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}g}" if decimals > 6 else f"{value:,.{decimals}f}".replace("-", "−")


def curve_value(name: str, value: float | None) -> str:
    """A curve's value with its unit: latencies in s or ms, cost per 1,000 requests, quality in %."""
    if value is None:
        return MISSING
    if name in ("ttft_s", "itl_s"):
        return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"
    if name == "cost_per_request":
        return number(value * 1000)
    return f"{number(value * 100)} %" if name == "quality" else number(value)


def latency_unit(*values: float | None) -> str:
    """The unit that `curve_value` writes for these latencies, for a caption."""
    units = {"s" if value >= 1 else "ms" for value in values if value is not None}
    return " / ".join(sorted(units)) or "s"
