"""Hits and wrong hits of a semantic cache over the similarity threshold, with the gate and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip
from app.theme import TOKENS

HEIGHT = 260.0
# Line -> its colour, and whether it is dashed: without the gate.
LINES = {
    "hit": ("cand", False),
    "hit_ungated": ("queue_cand", True),
    "wrong": ("worse", False),
    "wrong_ungated": ("worse", True),
}
SAID = {
    "hit": "cache_hit",
    "hit_ungated": "cache_hit_ungated",
    "wrong": "cache_wrong",
    "wrong_ungated": "cache_wrong_ungated",
}


def caching_chart(
    rows: Sequence[Mapping[str, Any]], threshold: float, mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """A row: line (of LINES), threshold, rate_pct, low_pct, high_pct, count, total. threshold: the one that is set.

    Words: cache_hit, cache_hit_ungated, cache_wrong, cache_wrong_ungated, cache_threshold, cache_rate, interval_95.
    """
    t = TOKENS[mode]
    points = [_point(row, words) for row in rows]
    across = ticks(min(row["x"] for row in points), 1.0)
    x_axis = tick_axis(across)
    x_axis.title = words["cache_threshold"]
    x = alt.X("x:Q", scale=alt.Scale(domain=[across[0], across[-1]], nice=False, zero=False), axis=x_axis)
    up = alt.Scale(domain=[0, 100], nice=False)
    y = alt.Y("y:Q", scale=up, axis=tick_axis([0, 25, 50, 75, 100], "%"))
    tips = tooltip(name=words["cache_rate"], at=words["cache_threshold"], told=words["cache_rate"],
                   ends=words["interval_95"])  # fmt: skip
    mark = alt.Chart(data([{"x": threshold}])).mark_rule(color=t["base_strong"], strokeDash=[3, 3]).encode(x=x)
    layers: list[alt.Chart] = [mark]
    for line, (colour, dashed) in LINES.items():
        own = alt.Chart(data([point for point in points if point["line"] == line]))
        if not dashed:
            band = own.mark_area(color=t[colour], opacity=0.14, tooltip=None)
            layers.append(band.encode(x=x, y=alt.Y("low:Q", scale=up), y2=alt.Y2("high:Q")))
        dash = [5, 4] if dashed else [1, 0]
        layers.append(own.mark_line(color=t[colour], strokeWidth=1.8, strokeDash=dash, tooltip=None).encode(x=x, y=y))
        layers.append(own.mark_point(color=t[colour], size=22, filled=True, opacity=0).encode(x=x, y=y, tooltip=tips))
    swatches = [
        Swatch(words[SAID[line]], t[colour], t[colour], "stroke" if dashed else "circle")
        for line, (colour, dashed) in LINES.items()
    ]
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _point(row: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {
        "line": row["line"],
        "name": words[SAID[row["line"]]],
        "x": row["threshold"],
        "y": row["rate_pct"],
        "low": row["low_pct"],
        "high": row["high_pct"],
        "at": exact(row["threshold"]),
        "told": f"{row['count']} / {row['total']} ({exact(round(row['rate_pct'], 1), '%')})",
        "ends": f"[{exact(round(row['low_pct'], 1))}, {exact(round(row['high_pct'], 1), '%')}]",
    }
