"""Quality against bits: a mark a format with its interval, the baseline as a line at no change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, interval, legend, ticks, tooltip
from app.theme import REQUESTS, TOKENS

HEIGHT = 250.0
APART_PX = 12  # between the marks of formats of nearly the same bits
NEAR = 0.25  # bits that are nearly the same
SHAPES = ("circle", "diamond", "square", "triangle-up")


def quality_chart(
    rows: Sequence[Mapping[str, Any]], unit: str, mode: str, words: Mapping[str, str]
) -> alt.LayerChart | None:
    """The change of one figure over the bits of each format; None when no format has both.

    A row: name, bits, change, ci95 (or None), is_base. Words: format, bits, change, interval_95.
    """
    t = TOKENS[mode]
    shown = [row for row in rows if row["bits"] is not None and row["change"] is not None]
    marks = [_mark(place, row, unit, mode) for place, row in enumerate(row for row in shown if not row["is_base"])]
    if not marks:
        return None
    _apart(marks)
    values = [0.0, *(value for mark in marks for value in (mark["low"], mark["high"], mark["y"]))]
    up = ticks(min(values), max(values), 5)
    across = ticks(0, max(row["bits"] for row in rows if row["bits"] is not None), 8)
    x = alt.X("x:Q", title=None, scale=alt.Scale(domain=[across[0], across[-1]], nice=False), axis=_axis(across, ""))
    y, foot = (
        alt.Y(f"{name}:Q", title=None, scale=alt.Scale(domain=[up[0], up[-1]], nice=False), axis=_axis(up, unit))
        for name in ("y", "low")
    )
    tips = tooltip(name=words["format"], bits=words["bits"], shown=words["change"], ends=words["interval_95"])
    layers: list[alt.Chart] = [
        alt.Chart(data([{"y": 0}])).mark_rule(color=t["base"], strokeDash=[4, 3], strokeWidth=1.4).encode(y=y)
    ]
    for mark in marks:
        moved = {"xOffset": mark["offset"]}
        one = alt.Chart(data([mark]))
        layers += [
            one.mark_rule(color=mark["colour"], strokeWidth=1.8, **moved).encode(
                x=x, y=foot, y2=alt.Y2("high:Q"), tooltip=tips
            ),
            one.mark_point(shape=mark["shape"], size=80, filled=True, opacity=1, color=mark["colour"], **moved).encode(
                x=x, y=y, tooltip=tips
            ),
        ]
    swatches = [Swatch(mark["name"], mark["colour"], mark["colour"], mark["shape"]) for mark in marks]
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _axis(values: list[float], unit: str) -> alt.Axis:
    text = "replace(format(datum.value, ',~g'), '-', '−')"
    label = f"{text} + (datum.value == {values[-1]!r} ? ' {unit}' : '')" if unit else text
    return alt.Axis(values=values, tickCount=len(values), labelExpr=label, grid=True)


def _mark(place: int, row: Mapping[str, Any], unit: str, mode: str) -> dict[str, Any]:
    colours = REQUESTS[mode]
    low, high = row["ci95"] or (row["change"], row["change"])
    return {
        "name": row["name"],
        "x": row["bits"],
        "y": row["change"],
        "low": low,
        "high": high,
        "bits": exact(round(row["bits"], 4)),
        "shown": exact(round(row["change"], 4), unit),
        "ends": interval(None if row["ci95"] is None else [round(end, 4) for end in row["ci95"]], unit),
        "colour": colours[place % len(colours)],
        "shape": SHAPES[place // len(colours) % len(SHAPES)],
        "offset": 0.0,
    }


def _apart(marks: list[dict[str, Any]]) -> None:
    """Move marks of nearly the same bits aside, so that no interval hides another."""
    clusters: dict[int, list[dict[str, Any]]] = {}
    for mark in marks:
        clusters.setdefault(math.floor(mark["x"] / NEAR), []).append(mark)
    for cluster in clusters.values():
        middle = (len(cluster) - 1) / 2
        for place, mark in enumerate(cluster):
            mark["offset"] = APART_PX * (place - middle)
