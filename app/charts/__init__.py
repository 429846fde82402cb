"""The charts of the pages, in Altair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from app.theme import chart_config


def _stub(mode: str) -> Any:
    return alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q").configure(**chart_config(mode))


def curve_card(curve: dict, names: tuple[str, str], mode: str, words: Mapping[str, str], *, scale: float = 1.0, digits: int = 3, unit: str = "") -> Any:
    return _stub(mode)


def change_strip(curve: dict, mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def guess_chart(guess_pct: float | None, curve: dict, mode: str, words: Mapping[str, str], *, predicted_pct: float | None = None) -> Any:
    return _stub(mode)


def ledger_chart(rows: list[dict], mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def timeline_chart(arms: list[dict], mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def block_map(blocks: dict, letters: Callable[[int], str], mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def progress_chart(live: dict, arms: tuple[str, str], mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def rate_chart(series: dict, previous: dict | None, names: tuple[str, str], is_candidate: bool, mode: str, words: Mapping[str, str]) -> Any:
    return _stub(mode)


def spark(values: list[float], mode: str) -> Any:
    return _stub(mode)
