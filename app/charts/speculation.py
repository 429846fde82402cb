"""Speculative decoding: speed-up over acceptance with the break-even line, and over the batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, interval, legend, tick_axis, ticks, tooltip
from app.theme import REQUESTS, TOKENS

HEIGHT = 300.0
SHAPES = ("circle", "square", "triangle-up", "cross", "triangle-down")
CONSTRUCTED = "diamond"
ROOM = 1.25  # of the axis above the highest point; an interval that leaves it ends in an arrow
COLOURS = {"chosen": "cand", "constructed": "base_strong", "other": "base"}


def break_even_chart(
    curve: Sequence[tuple[float, float]],
    needed: float | None,
    marks: Sequence[Mapping[str, Any]],
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """Speed-up over alpha: the model's curve (computed), the line of no gain, and every measured point.

    A mark: form, name, alpha, speedup, ci95 (or None), predicted, kind ("chosen", "other" or "constructed"). Words:
    alpha, speedup, interval_95, model_says, form, the_model, needed_alpha, chosen_form, other_forms, constructed.
    """
    t = TOKENS[mode]
    shown = [_mark(mark, t) for mark in marks]
    up = ticks(0, max([1.2, *(y for _, y in curve), *(ROOM * mark["y"] for mark in shown)]), 6)
    across = ticks(0, 1, 5)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=_titled(across, words["alpha"]))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, up[-1]], nice=False), axis=tick_axis(up, "×"))
    layers = [_no_gain(t, y)]
    if curve:
        line = alt.Chart(data([{"x": a, "y": s} for a, s in curve]))
        layers.append(line.mark_line(color=t["cand"], strokeWidth=2.2, tooltip=None).encode(x=x, y=y))
    if needed is not None and 0 < needed < 1:
        layers += _needed(needed, t, x, y, words)
    layers += _intervals(shown, x, y, up[-1])
    tips = tooltip(name=words["form"], alpha=words["alpha"], shown=words["speedup"], ends=words["interval_95"],
                   model=words["model_says"])  # fmt: skip
    for kind in ("other", "constructed", "chosen"):
        own = [mark for mark in shown if mark["kind"] == kind]
        if own:
            layers.append(_points(own, x, y, tips, hollow=kind == "constructed", ground=t["card"]))
    return finish([*layers, legend(_swatches(shown, t, words), HEIGHT, pixels=False)], mode, HEIGHT)


def _mark(mark: Mapping[str, Any], t: Mapping[str, str]) -> dict[str, Any]:
    low, high = mark["ci95"] or (mark["speedup"], mark["speedup"])
    return {
        "x": mark["alpha"],
        "y": mark["speedup"],
        "low": low,
        "high": high,
        "kind": mark["kind"],
        "name": mark["name"],
        "alpha": exact(round(mark["alpha"], 4)),
        "shown": exact(round(mark["speedup"], 4), "×"),
        "ends": interval(None if mark["ci95"] is None else [round(end, 4) for end in mark["ci95"]], "×"),
        "model": exact(None if mark["predicted"] is None else round(mark["predicted"], 4), "×"),
        "colour": t[COLOURS[mark["kind"]]],
        "shape": CONSTRUCTED if mark["kind"] == "constructed" else "circle",
    }


def _no_gain(t: Mapping[str, str], y: alt.Y) -> alt.Chart:
    return alt.Chart(data([{"y": 1}])).mark_rule(color=t["base_strong"], strokeDash=[4, 3], strokeWidth=1.4).encode(y=y)


def _needed(needed: float, t: Mapping[str, str], x: alt.X, y: alt.Y, words: Mapping[str, str]) -> list[alt.Chart]:
    """Where the curve crosses the line of no gain."""
    right = needed < 0.6
    text = words["needed_alpha"].format(value=f"{needed:.2f}")
    place = alt.Chart(data([{"x": needed, "y": 0.0, "text": text}]))
    return [
        place.mark_rule(color=t["border2"], strokeWidth=1.4).encode(x=x),
        place.mark_text(
            align="left" if right else "right",
            dx=6 if right else -6,
            dy=-8,
            color=t["muted"],
            fontSize=12,
            tooltip=None,
        ).encode(x=x, y=y, text=alt.Text("text:N")),
    ]


def _intervals(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, top: float) -> list[alt.Chart]:
    """The intervals up to the top of the chart, with an arrow where one goes on."""
    ranged = [{**row, "y": row["low"], "high": min(row["high"], top)} for row in rows if row["high"] > row["low"]]
    beyond = [{**row, "y": top} for row in rows if row["high"] > top]
    colour = alt.Color("colour:N", scale=None)
    layers = []
    if ranged:
        rule = alt.Chart(data(ranged)).mark_rule(strokeWidth=1.6, tooltip=None)
        layers.append(rule.encode(x=x, y=y, y2=alt.Y2("high:Q"), color=colour))
    if beyond:
        arrow = alt.Chart(data(beyond)).mark_point(shape="triangle-up", size=50, filled=True, opacity=1, tooltip=None)
        layers.append(arrow.encode(x=x, y=y, color=colour))
    return layers


def _points(
    rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, tips: list[alt.Tooltip], *, hollow: bool, ground: str
) -> alt.Chart:
    made = alt.Chart(data(rows))
    if hollow:
        return made.mark_point(shape=CONSTRUCTED, size=70, strokeWidth=1.8, fill=ground, opacity=1).encode(
            x=x, y=y, color=alt.Color("colour:N", scale=None), tooltip=tips
        )
    return made.mark_point(size=75, filled=True, opacity=1).encode(
        x=x, y=y, color=alt.Color("colour:N", scale=None), tooltip=tips
    )


def _swatches(rows: Sequence[Mapping[str, Any]], t: Mapping[str, str], words: Mapping[str, str]) -> list[Swatch]:
    kinds = {row["kind"] for row in rows}
    entries = [Swatch(words["the_model"], t["cand"], t["cand"], "M-1,-.15H1V.15H-1Z")]
    if "chosen" in kinds:
        entries.append(Swatch(words["chosen_form"], t["cand"], t["cand"], "circle"))
    if "other" in kinds:
        entries.append(Swatch(words["other_forms"], t["base"], t["base"], "circle"))
    if "constructed" in kinds:
        entries.append(Swatch(words["constructed"], t["card"], t["base_strong"], CONSTRUCTED))
    return entries


def batch_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """Speed-up over the sequences at once, a line a form; below the dashed line it is slower than plain decoding.

    A row: name, batch, speedup, ci95 (or None), alpha, constructed (whether the draft is). Words: batch, speedup,
    interval_95, form, alpha.
    """
    t, colours = TOKENS[mode], REQUESTS[mode]
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = [_batch_mark(row, names.index(row["name"]), colours) for row in rows]
    batches = sorted({row["x"] for row in shown})
    up = ticks(0, max([1.2, *(ROOM * row["y"] for row in shown)]), 6)
    ends = [batches[0] / 1.15, batches[-1] * 1.15]
    x = alt.X(
        "x:Q", scale=alt.Scale(type="log", base=2, domain=ends),
        axis=alt.Axis(values=batches, tickCount=len(batches), grid=True, format="d", title=words["batch"]),
    )  # fmt: skip
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, up[-1]], nice=False), axis=tick_axis(up, "×"))
    tips = tooltip(name=words["form"], batch=words["batch"], shown=words["speedup"], ends=words["interval_95"],
                   alpha=words["alpha"])  # fmt: skip
    layers = [_no_gain(t, y)]
    for place, name in enumerate(names):
        own = [row for row in shown if row["name"] == name]
        chart, colour = alt.Chart(data(own)), colours[place % len(colours)]
        dash = [5, 3] if own[0]["constructed"] else [1, 0]
        layers.append(chart.mark_line(color=colour, strokeWidth=2.2, strokeDash=dash, tooltip=None).encode(x=x, y=y))
        layers += _intervals(own, x, y, up[-1])
        layers.append(
            chart.mark_point(shape=own[0]["shape"], size=70, filled=True, opacity=1, color=colour).encode(
                x=x, y=y, tooltip=tips
            )
        )
    swatches = [
        Swatch(name, row["colour"], row["colour"], row["shape"])
        for name in names
        for row in [next(row for row in shown if row["name"] == name)]
    ]
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _batch_mark(row: Mapping[str, Any], place: int, colours: Sequence[str]) -> dict[str, Any]:
    low, high = row["ci95"] or (row["speedup"], row["speedup"])
    return {
        "x": row["batch"],
        "y": row["speedup"],
        "low": low,
        "high": high,
        "name": row["name"],
        "batch": exact(row["batch"]),
        "shown": exact(round(row["speedup"], 4), "×"),
        "ends": interval(None if row["ci95"] is None else [round(end, 4) for end in row["ci95"]], "×"),
        "alpha": exact(None if row["alpha"] is None else round(row["alpha"], 4)),
        "constructed": row["constructed"],
        "colour": colours[place % len(colours)],
        "shape": CONSTRUCTED if row["constructed"] else SHAPES[place % len(SHAPES)],
    }


def _titled(values: list[float], title: str) -> alt.Axis:
    return alt.Axis(values=values, tickCount=len(values), grid=True, title=title, format="~g")
