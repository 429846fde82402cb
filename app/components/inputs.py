"""Inputs of a calculator page whose values live in the address, so that a link shows the same page.

A widget starts from the address, then from its default; a value of the address that is not accepted is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from app.state import set_address

Label = Callable[[Any], str]


def key_of(page: str, name: str) -> str:
    """The widget's key: an input of one page is not that of another."""
    return f"{page}-{name}"


def choice(page: str, name: str, label: str, options: Sequence[str], default: str, shown: Label, **more: Any) -> str:
    """One of a list, in a select box."""
    key = key_of(page, name)
    if st.session_state.get(key) not in options:
        asked = st.query_params.get(name)
        st.session_state[key] = asked if asked in options else default
    value: str = st.selectbox(label, options, format_func=shown, key=key, **more)
    set_address(**{name: value})
    return value


def segments(page: str, name: str, label: str, options: Sequence[str], default: str, shown: Label) -> str:
    """One of a few, side by side."""
    key = key_of(page, name)
    if st.session_state.get(key) not in options:
        asked = st.query_params.get(name)
        st.session_state[key] = asked if asked in options else default
    value = st.segmented_control(label, options, format_func=shown, key=key, required=True, width="stretch")
    set_address(**{name: value})
    return value or default


def whole(page: str, name: str, label: str, default: int, low: int, high: int, **more: Any) -> int:
    """A whole number from `low` to `high`."""
    key = key_of(page, name)
    if key not in st.session_state:
        st.session_state[key] = _whole(st.query_params.get(name), default, low, high)
    value = int(st.number_input(label, low, high, key=key, **more))
    set_address(**{name: value})
    return value


def decimal(page: str, name: str, label: str, default: float, low: float, high: float, **more: Any) -> float:
    """A number from `low` to `high`."""
    key = key_of(page, name)
    if key not in st.session_state:
        st.session_state[key] = _decimal(st.query_params.get(name), default, low, high)
    value = float(st.number_input(label, low, high, key=key, **more))
    set_address(**{name: f"{value:g}"})
    return value


def rung(
    page: str, name: str, label: str, default: int, ladder: Sequence[int], bounds: tuple[int, int], shown: Label
) -> int:
    """A whole number on a slider of round values; one of the address that lies between two is put among them."""
    key = key_of(page, name)
    if key not in st.session_state:
        st.session_state[key] = _whole(st.query_params.get(name), default, *bounds)
    options = sorted({*ladder, st.session_state[key]})
    value: int = st.select_slider(label, options, format_func=shown, key=key)
    set_address(**{name: value})
    return value


def exact(page: str, name: str, label: str, bounds: tuple[int, int]) -> None:
    """A field for the same number as the slider `name`, for values between its rungs."""
    key = key_of(page, name)
    current = int(st.session_state[key])
    typed = f"{key}-exact-{current}"

    def take() -> None:
        st.session_state[key] = int(st.session_state[typed])

    st.number_input(label, *bounds, current, key=typed, on_change=take)


def switch(page: str, name: str, label: str, **more: Any) -> bool:
    """On or off; off is not written into the address."""
    key = key_of(page, name)
    if key not in st.session_state:
        st.session_state[key] = st.query_params.get(name) == "1"
    value = bool(st.checkbox(label, key=key, **more))
    set_address(**{name: "1" if value else None})
    return value


def _whole(text: str | None, default: int, low: int, high: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and low <= int(text) <= high else default


def _decimal(text: str | None, default: float, low: float, high: float) -> float:
    try:
        value = float(text) if text else default
    except ValueError:
        return default
    return value if low <= value <= high else default
