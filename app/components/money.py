"""The price of a device and hour: one input for it on every page, and the word that stands beside it."""

from __future__ import annotations

from typing import Any

from app.components.inputs import decimal
from app.components.section import escape
from app.preferences import LEAST_PRICE, MOST_PRICE, preferences


def price(page: str, label: str, name: str = "price", low: float = LEAST_PRICE, **more: Any) -> float:
    """Its input, which starts from what Settings say."""
    return decimal(page, name, in_currency(label), preferences().price, low, MOST_PRICE, format="%g", **more)


def in_currency(label: str) -> str:
    """A label with the currency of Settings, where one is given."""
    currency = escape(preferences().currency)
    return f"{label}, {currency}" if currency else label


def price_text() -> str:
    """The price that pages start from, with its currency."""
    return f"{preferences().price:,.2f} {escape(preferences().currency)}".strip()
