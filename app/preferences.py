"""What the pages start from on this machine: language, price, objectives, and whether the tour was seen.

Kept in one file of the data folder, so that it outlasts the browser and the server; read once a session.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from app.i18n import LANGUAGE_NAMES
from experiments.store.store import data_home
from ledger.errors import CannotRunError, InputError

KEY = "preferences"
LEAST_PRICE, MOST_PRICE = 0.001, 10_000.0
LONGEST_CURRENCY = 8


@dataclass(frozen=True)
class Preferences:
    """price: of a device and hour, in `currency`, which is a word beside prices and converts nothing."""

    language: str = "en"
    price: float = 1.0
    currency: str = ""
    slo: str = ""
    tour_seen: bool = False


def preferences() -> Preferences:
    """Those of this machine; the usual ones where there is no file, and for each value that is not accepted."""
    if KEY not in st.session_state:
        st.session_state[KEY] = _read()
    found: Preferences = st.session_state[KEY]
    return found


def prefer(**changes: Any) -> None:
    """Change some, for this session and those that begin later. InputError for a value that is not accepted;
    CannotRunError when the data folder can't be written, and then they hold for this session only."""
    for name, value in changes.items():
        _check(name, value)
    found = replace(preferences(), **changes)
    st.session_state[KEY] = found
    _write(found)


def preferences_path() -> Path:
    """Where they are kept."""
    return data_home() / "preferences.json"


def _read() -> Preferences:
    try:
        given = json.loads(preferences_path().read_text("utf-8"))
    except (OSError, ValueError):
        return Preferences()
    kept: dict[str, Any] = {}
    for name in asdict(Preferences()):
        if isinstance(given, dict) and name in given:
            try:
                _check(name, given[name])
            except InputError:
                continue
            kept[name] = float(given[name]) if name == "price" else given[name]
    return Preferences(**kept)


def _write(found: Preferences) -> None:
    path = preferences_path()
    draft = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(found), ensure_ascii=False, indent=1), "utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise CannotRunError(f"{path} can't be written: {error.strerror}") from error


def _check(name: str, value: Any) -> None:
    """InputError for a value that is not accepted."""
    if name == "language" and value not in LANGUAGE_NAMES:
        raise InputError(name, value, ", ".join(LANGUAGE_NAMES))
    if name == "price" and not _is_price(value):
        raise InputError(name, value, f"a number from {LEAST_PRICE} to {MOST_PRICE:g}")
    if name == "currency" and not (isinstance(value, str) and len(value) <= LONGEST_CURRENCY and value.isprintable()):
        raise InputError(name, value, f"at most {LONGEST_CURRENCY} characters, as USD or CNY")
    if name == "tour_seen" and not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    if name == "slo":
        if not isinstance(value, str):
            raise InputError(name, value, "objectives such as ttft_p95=0.5,itl_p95=0.1")
        if value:
            from experiments.metrics import parse_slo  # with all metrics, which the first page is drawn without

            parse_slo(value)


def _is_price(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and LEAST_PRICE <= value <= MOST_PRICE
    )
