"""A sweep: a figure over the load with the band of a knee, and two figures against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip
from app.theme import TOKENS

HEIGHT = 230.0
LOG_FROM = 8  # a range of loads this wide is drawn on a logarithmic scale

Rows = Sequence[Mapping[str, Any]]


def load_chart(
    rows: Rows,
    band: tuple[float, float] | None,
    unit: str,
    x_title: str,
    mode: str,
    words: Mapping[str, str],
    *,
    limit: float | None = None,
) -> alt.LayerChart:
    """A figure over the load, the span of the repeats at each point, and the step in which the knee lies.

    A row: x, label, y, low, high, and pressed where the point is marked. limit: a dashed line. Words: load, value,
    knee, measured_points, pressed_points.
    """
    t = TOKENS[mode]
    up = ticks(0, max([*(row["high"] for row in rows), *([limit] if limit else [])]), 5)
    x, y = _load_axis(rows, x_title), alt.Y("y:Q", title=None, scale=_up(up), axis=tick_axis(up, unit))
    shown = [{**row, "shown": exact(round(row["y"], 6), unit)} for row in rows]
    tips = tooltip(label=words["load"], shown=words["value"])
    layers = []
    if band is not None:
        place = alt.Chart(data([{"x": band[0], "end": band[1]}]))
        layers.append(place.mark_rect(color=t["worse_ground"], tooltip=None).encode(x=x, x2=alt.X2("end:Q")))
    if limit is not None:
        rule = alt.Chart(data([{"y": limit}])).mark_rule(color=t["base_strong"], strokeDash=[4, 3], strokeWidth=1.4)
        layers.append(rule.encode(y=y))
    layers.append(alt.Chart(data(shown)).mark_line(color=t["cand"], strokeWidth=2.2, tooltip=None).encode(x=x, y=y))
    spans = [{**row, "y": row["low"]} for row in shown if row["high"] > row["low"]]
    if spans:
        layers.append(
            alt.Chart(data(spans)).mark_rule(color=t["cand"], tooltip=None).encode(x=x, y=y, y2=alt.Y2("high:Q"))
        )
    swatches = [Swatch(words["measured_points"], t["cand"], t["cand"], "circle")]
    for marked, colour, shape in ((False, "cand", "circle"), (True, "worse", "triangle-up")):
        own = [row for row in shown if bool(row.get("pressed")) == marked]
        if own:
            point = alt.Chart(data(own)).mark_point(size=70, filled=True, opacity=1, color=t[colour], shape=shape)
            layers.append(point.encode(x=x, y=y, tooltip=tips))
            if marked:
                swatches.append(Swatch(words["pressed_points"], t[colour], t[colour], shape))
    if band is not None:
        swatches.append(Swatch(words["knee"], t["worse_ground"], t["worse"], "square"))
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _up(values: Sequence[float]) -> alt.Scale:
    return alt.Scale(domain=[0, values[-1]], nice=False)


def _load_axis(rows: Rows, title: str) -> alt.X:
    """A scale of loads, logarithmic where they span much; of names, one after another."""
    values = [row["x"] for row in rows]
    if not all(isinstance(value, int | float) for value in values):
        return alt.X("x:N", sort=[str(value) for value in values], title=title, axis=alt.Axis(labelAngle=0))
    low, high = min(values), max(values)
    kind: Literal["log", "linear"] = "log" if low > 0 and high / low >= LOG_FROM else "linear"
    axis = alt.Axis(values=sorted(set(values)), title=title, grid=False, format="~g")
    return alt.X("x:Q", scale=alt.Scale(type=kind, domain=[low, high], nice=False, padding=14), axis=axis)


def trade_chart(
    rows: Rows, titles: tuple[str, str], units: tuple[str, str], mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """Two figures of every point against each other, named by their load, joined in the order of it.

    A row: x, y, value (its load), label, front (on the Pareto front: filled). Words: load, pareto, other_points,
    measured_points.
    """
    t = TOKENS[mode]
    right, up = ticks(0, max(row["x"] for row in rows), 5), ticks(0, max(row["y"] for row in rows), 5)
    across = tick_axis(right, units[0])
    across.title = titles[0]
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, right[-1]], nice=False), axis=across)
    y = alt.Y("y:Q", title=None, scale=_up(up), axis=tick_axis(up, units[1]))
    shown_units = list(zip("xy", units, strict=True))
    shown = [
        {
            **row,
            "order": place,
            "name": _short(row),
            **{f"{axis}_text": exact(round(row[axis], 6), unit) for axis, unit in shown_units},
        }
        for place, row in enumerate(rows)
    ]
    tips = tooltip(label=words["load"], x_text=titles[0], y_text=titles[1])
    line = alt.Chart(data(shown)).mark_line(color=t["base"], strokeWidth=1.4, tooltip=None)
    layers = [line.encode(x=x, y=y, order=alt.Order("order:Q"))]
    fronts = any(row["front"] for row in shown)
    for front in (False, True):
        own = [row for row in shown if row["front"] == front]
        if own:
            fill = t["cand"] if front or not fronts else t["card"]
            mark = alt.Chart(data(own)).mark_point(
                size=75, fill=fill, stroke=t["cand"], strokeWidth=1.8, opacity=1, shape="circle"
            )
            layers.append(mark.encode(x=x, y=y, tooltip=tips))
    named = alt.Chart(data(shown)).mark_text(align="left", dx=7, dy=-8, color=t["muted"], fontSize=11, tooltip=None)
    layers.append(named.encode(x=x, y=y, text=alt.Text("name:N")))
    if not fronts:
        swatches = [Swatch(words["measured_points"], t["cand"], t["cand"], "circle")]
    else:
        swatches = [Swatch(words["pareto"], t["cand"], t["cand"], "circle"),
                    Swatch(words["other_points"], t["card"], t["cand"], "circle")]  # fmt: skip
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _short(row: Mapping[str, Any]) -> str:
    """A load beside its point: the number alone, since points of light loads lie close together."""
    value = row["value"]
    return f"{value:g}" if isinstance(value, int | float) else str(row["label"])
