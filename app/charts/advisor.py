"""What an advice is predicted to do, a line a curve: its 80 % band and median, and beside it what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, finish, interval, legend, percent, tick_axis, ticks, tooltip
from app.theme import TOKENS

ROW_HEIGHT, TOP = 34.0, 26.0
WIDEST_PCT = 400.0  # a band that goes on is cut here; its numbers stand in the tooltip


def prediction_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """A row: name, median_pct, band80_pct, measured_pct (None before the test). Rows without a median are left out.

    Words: curve_name, predicted_band, measured_mark.
    """
    t = TOKENS[mode]
    shown = [_mark(row) for row in rows if row["median_pct"] is not None]
    height = TOP + ROW_HEIGHT * max(1, len(shown))
    ends = [value for row in shown for value in (row["low"], row["high"], row["measured"]) if value is not None]
    across = ticks(min([-10.0, *ends]), max([10.0, *ends]))
    axis = tick_axis(across, "%")
    scale = alt.Scale(domain=[across[0], across[-1]], nice=False, clamp=True)
    x = alt.X("median:Q", title=None, scale=scale, axis=axis)
    y = alt.Y("name:N", title=None, sort=[row["name"] for row in shown], axis=alt.Axis(labelLimit=200))
    tips = tooltip(name=words["curve_name"], said=words["predicted_band"], found=words["measured_mark"])
    chart = alt.Chart(data(shown))
    zero = alt.Chart(data([{"median": 0}])).mark_rule(color=t["border2"]).encode(x=x)
    band = chart.mark_rule(color=t["simulated"], strokeWidth=5, opacity=0.55).encode(
        x=alt.X("low:Q", title=None, scale=scale, axis=axis), x2=alt.X2("high:Q"), y=y, tooltip=tips
    )
    middle = chart.mark_point(color=t["simulated"], filled=True, size=80, opacity=1).encode(x=x, y=y, tooltip=tips)
    layers = [zero, band, middle]
    swatches = [Swatch(words["predicted_band"], t["simulated"], t["simulated"])]
    measured = [row for row in shown if row["measured"] is not None]
    if measured:
        found = alt.Chart(data(measured)).mark_point(color=t["text"], filled=False, size=110, strokeWidth=2)
        place = alt.X("measured:Q", title=None, scale=scale, axis=axis)
        layers.append(found.encode(x=place, y=y, tooltip=tips))
        swatches.append(Swatch(words["measured_mark"], t["text"], t["text"], "circle"))
    return finish([*layers, legend(swatches, height, pixels=False)], mode, height)


def _mark(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["band80_pct"] or (row["median_pct"], row["median_pct"])
    measured = row["measured_pct"]
    return {
        "name": row["name"],
        "median": _within(row["median_pct"]),
        "low": _within(low),
        "high": _within(high),
        "measured": None if measured is None else _within(measured),
        "said": f"{percent(row['median_pct'])} {interval([round(low, 1), round(high, 1)], '%')}",
        "found": percent(measured),
    }


def _within(value: float) -> float:
    return min(WIDEST_PCT, value)
