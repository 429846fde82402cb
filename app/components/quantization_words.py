"""How the figures of the Quantization page are written. Formatting only."""

from __future__ import annotations

from collections.abc import Callable

from app.state import t
from experiments.quantization_view import Interval
from experiments.report.words import MISSING, number, signed_percent

NO_BREAK = "\u00a0"


def points(found: Interval) -> str:
    """−1.3 [−3.0, +0.4]: a change of accuracy in points."""
    if found.value is None:
        return MISSING
    return signed(found.value) + _ends(found, signed)


def ratio(found: Interval) -> str:
    """1.85× [1.80, 1.91]: how many times as fast."""
    if found.value is None:
        return MISSING
    return f"{number(found.value)}×" + _ends(found, number)


def change(found: Interval) -> str:
    """+1.2 % [+0.9, +1.5]."""
    if found.value is None:
        return MISSING
    return signed_percent(found.value) + _ends(found, lambda value: signed_percent(value).removesuffix(" %"))


def share(value: float | None) -> str:
    """A share in percent."""
    return MISSING if value is None else f"{100 * value:.1f}{NO_BREAK}%"


def signed(value: float) -> str:
    """One decimal, a true minus, and a sign unless it is zero."""
    text = f"{value:+.1f}".replace("-", "−")
    return "0.0" if float(f"{value:.1f}") == 0 else text


def nats(value: float) -> str:
    """A change of log-probability."""
    return t("quant.nats", value=f"{value:+.3f}".replace("-", "−"))


def _ends(found: Interval, shown: Callable[[float], str]) -> str:
    if found.ci95 is None:
        return ""
    low, high = (shown(end) for end in found.ci95)
    return f" [{low},{NO_BREAK}{high}]"
