"""Inputs of a calculator page whose values live in the address, so that a link shows the same page.

A widget starts from the address, then from what it said when its page was last drawn, then from its default. A value of
the address that is not accepted is passed over, and `passed_over` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from app.components.section import escape
from app.components.undo import remember
from app.state import set_address, t

Label = Callable[[Any], str]
KEPT = "kept-inputs"  # widget key -> its value as text: Streamlit forgets the widgets of a page that is left
REFUSED = "refused-inputs"  # widget key -> (name, text of the address, text used instead)
SHOWN_CHARACTERS = 40
NO_CHOICE = "-"


def key_of(page: str, name: str) -> str:
    """The widget's key: an input of one page is not that of another."""
    return f"{page}-{name}"


def choice(page: str, name: str, label: str, options: Sequence[str], default: str, shown: Label, **more: Any) -> str:
    """One of a list, in a select box."""
    key = key_of(page, name)
    if st.session_state.get(key) not in options:
        begin_with(page, name, lambda text: text if text in options else None, default)
    value: str = st.selectbox(label, options, format_func=shown, key=key, **more)
    keep(page, name, value, label)
    return value


def segments(page: str, name: str, label: str, options: Sequence[str], default: str, shown: Label) -> str:
    """One of a few, side by side."""
    key = key_of(page, name)
    if st.session_state.get(key) not in options:
        begin_with(page, name, lambda text: text if text in options else None, default)
    value = st.segmented_control(label, options, format_func=shown, key=key, required=True, width="stretch")
    keep(page, name, value or default, label)
    return value or default


def several(
    page: str, name: str, label: str, options: Sequence[str], default: Sequence[str], shown: Label
) -> list[str]:
    """Any number of a list, in its order; in the address they are joined by commas, and none is "-"."""
    key = key_of(page, name)
    if not set(st.session_state.get(key, [None])) <= set(options):
        begin_with(page, name, lambda text: _several(text, options), list(default))
    chosen = st.pills(label, options, selection_mode="multi", format_func=shown, key=key)
    value = [option for option in options if option in chosen]
    keep(page, name, ",".join(value) or NO_CHOICE, label)
    return value


def text(page: str, name: str, label: str, default: str, *, empty: bool = False, **more: Any) -> str:
    """A line of text; an empty one stands for the default unless it may be empty."""
    key = key_of(page, name)
    empty = empty or not default
    if key not in st.session_state:
        begin_with(page, name, lambda given: given.strip() or ("" if empty else None), default)
    value = st.text_input(label, key=key, **more).strip() or ("" if empty else default)
    keep(page, name, value, label)
    return value


def whole(page: str, name: str, label: str, default: int, low: int, high: int, **more: Any) -> int:
    """A whole number from `low` to `high`."""
    key = key_of(page, name)
    if key not in st.session_state:
        begin_with(page, name, lambda text: _whole(text, low, high), default)
    value = int(st.number_input(label, low, high, key=key, **more))
    keep(page, name, value, label)
    return value


def decimal(page: str, name: str, label: str, default: float, low: float, high: float, **more: Any) -> float:
    """A number from `low` to `high`."""
    key = key_of(page, name)
    if key not in st.session_state:
        begin_with(page, name, lambda text: _decimal(text, low, high), default)
    value = float(st.number_input(label, low, high, key=key, **more))
    keep(page, name, f"{value:g}", label)
    return value


def rung(
    page: str, name: str, label: str, default: int, ladder: Sequence[int], bounds: tuple[int, int], shown: Label
) -> int:
    """A whole number on a slider of round values; one of the address that lies between two is put among them."""
    key = key_of(page, name)
    if key not in st.session_state:
        begin_with(page, name, lambda text: _whole(text, *bounds), default)
    options = sorted({*ladder, st.session_state[key]})
    value: int = st.select_slider(label, options, format_func=shown, key=key)
    keep(page, name, value, label)
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
        begin_with(page, name, {"1": True, "0": False}.get, False)
    value = bool(st.checkbox(label, key=key, **more))
    keep(page, name, "1" if value else "0", label)
    if not value:
        set_address(**{name: None})
    return value


def clear(page: str, *names: str) -> None:
    """Let these inputs begin anew with their defaults."""
    for name in names:
        key = key_of(page, name)
        st.session_state.pop(key, None)
        st.session_state.get(KEPT, {}).pop(key, None)
        set_address(**{name: None})


def passed_over(page: str) -> None:
    """One line naming what the address asked of this page and is not accepted, until the input is changed."""
    found = [entry for key, entry in st.session_state.get(REFUSED, {}).items() if key.startswith(f"{page}-")]
    if found:
        listed = ", ".join(f"{name}={asked[:SHOWN_CHARACTERS]}" for name, asked, _ in found)
        st.warning(t("calc.passed_over", values=escape(listed)))


def begin_with(page: str, name: str, read: Callable[[str], Any], default: Any) -> None:
    """Set a widget's first value; `read` gives None for a text that is not accepted."""
    key, asked = key_of(page, name), st.query_params.get(name)
    refused = st.session_state.setdefault(REFUSED, {})
    refused.pop(key, None)
    kept = st.session_state.get(KEPT, {}).get(key)
    for text in (asked, kept):
        value = None if text is None else read(text)
        if value is not None:
            break
    else:
        value = default
    st.session_state[key] = value
    if asked is not None and read(asked) is None:
        refused[key] = (name, asked, None)


def keep(page: str, name: str, value: Any, label: str) -> None:
    """Remember the value for the return to this page, and what it was before, and write it into the address."""
    key, text = key_of(page, name), str(value)
    kept = st.session_state.setdefault(KEPT, {})
    before = kept.get(key)
    kept[key] = text
    if before not in (None, text):
        remember(page, label, lambda: _take_back(page, name, before))
    refused = st.session_state.get(REFUSED, {})
    if key in refused:
        label, asked, used = refused[key]
        if used not in (None, text):
            del refused[key]
        else:
            refused[key] = (label, asked, text)
    set_address(**{name: text})


def _take_back(page: str, name: str, before: str) -> None:
    """Let the input begin with an earlier value when it is drawn next."""
    key = key_of(page, name)
    st.session_state.pop(key, None)
    st.session_state.setdefault(KEPT, {})[key] = before
    set_address(**{name: before})


def _several(text: str, options: Sequence[str]) -> list[str] | None:
    """The options named; None when one is not an option."""
    named = [] if text == NO_CHOICE else text.split(",")
    return [option for option in options if option in named] if set(named) <= set(options) else None


def _whole(text: str, low: int, high: int) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high else None


def _decimal(text: str, low: float, high: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if low <= value <= high else None
