"""The curve cards of a comparison: bars with intervals, the strip of change, and guess against result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt

from app.charts.common import (
    arm_colour,
    boxes,
    data,
    exact,
    finish,
    interval,
    label,
    number,
    percent,
    px,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

CARD_HEIGHT = 76
STRIP_HEIGHT = 40
STRIP_END = 4.0  # in doublings
NARROW = 0.2  # doublings that may be less than 4 px
GUESS_ROW = 24


def curve_card(
    curve: Mapping[str, Any],
    names: tuple[str, str],
    mode: str,
    words: Mapping[str, str],
    *,
    scale: float = 1.0,
    digits: int = 3,
    unit: str = "",
) -> alt.LayerChart:
    """Baseline and candidate as bars from zero with their 95 % intervals; values times `scale`, in `unit`.

    Words: arm, value, interval_95, pairs, label, and the curve's provenance (measured, computed, simulated).
    """
    rows = [_arm_row(arm, curve, names[arm], mode, words, scale, digits, unit) for arm in (0, 1)]
    ends = [abs(value) for row in rows for value in (row["value"], row["high"]) if value is not None]
    x = alt.X("start:Q", axis=None, scale=x_scale(0, (max(ends, default=0) or 1) * 1.02))
    tips = tooltip(
        arm=words["arm"], shown=words["value"], ends=words["interval_95"], pairs=words["pairs"], label=words["label"]
    )
    known = [row for row in rows if row["value"] is not None]
    ranged = [row for row in known if row["low"] is not None]
    layers = [
        boxes(_bar_parts(known), CARD_HEIGHT, x).encode(opacity=alt.Opacity("opacity:Q", scale=None), tooltip=tips),
        *_whiskers(ranged, x, tips),
        label(
            [{"text": row["name"], "y": row["y"] - 16, "colour": row["text_colour"]} for row in rows],
            CARD_HEIGHT,
            alt.value(0),
            align="left",
            limit=alt.ExprRef(f"width - {max(text_px(row['text']) for row in rows) + 8:.0f}"),
        ),
        label(
            [{"text": row["text"], "y": row["y"] - 16} for row in rows],
            CARD_HEIGHT,
            alt.value(alt.ExprRef("width")),
            colour=TOKENS[mode]["text"],
            align="right",
            fontWeight=600,
        ),
    ]
    return finish(layers, mode, CARD_HEIGHT)


def _arm_row(
    arm: int,
    curve: Mapping[str, Any],
    name: str,
    mode: str,
    words: Mapping[str, str],
    scale: float,
    digits: int,
    unit: str,
) -> dict[str, Any]:
    key = ("baseline", "candidate")[arm]
    value, ends = curve[key], curve[f"{key}_ci95"]
    value = None if value is None else value * scale
    ends = None if ends is None else [end * scale for end in ends]
    return {
        "name": name,
        "arm": name,
        "value": value,
        "low": None if ends is None else ends[0],
        "high": None if ends is None else ends[1],
        "y": 38 * arm + 26,
        "text": number(value, digits, unit),
        "shown": exact(value, unit),
        "ends": interval(ends, unit),
        "pairs": exact(curve["pairs"]),
        "label": words[curve["provenance"]],
        "fill": arm_colour(mode, bool(arm)),
        "strong": arm_colour(mode, bool(arm), "strong"),
        "text_colour": arm_colour(mode, bool(arm), "text"),
    }


def _bar_parts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bar ends at the value; under the interval it is paler, and paler still past the value."""
    parts = []
    for row in rows:
        low, value = row["low"], row["value"]
        solid = value if low is None else max(0, min(low, value))
        pieces = [(0, solid, 1.0), (solid, value, 0.6), (value, row["high"] or value, 0.25)]
        box = {"top": row["y"] - 5, "bottom": row["y"] + 5}
        parts += [{**row, **box, "start": a, "end": b, "opacity": o} for a, b, o in pieces if b > a]
    return parts


def _whiskers(rows: list[dict[str, Any]], x: alt.X, tips: list[alt.Tooltip]) -> list[alt.Chart]:
    line = [{**row, "start": row["low"], "end": row["high"]} for row in rows]
    ends = [{**row, "start": row[end]} for row in rows for end in ("low", "high")]
    colour = alt.Color("strong:N", scale=None)
    y = px("y", CARD_HEIGHT)
    return [
        alt.Chart(data(line))
        .mark_rule(strokeWidth=1.8)
        .encode(x=x, x2=alt.X2("end:Q"), y=y, color=colour, tooltip=tips),
        alt.Chart(data(ends))
        .mark_tick(thickness=1.6, height=8, orient="vertical")
        .encode(x=x, y=y, color=colour, tooltip=tips),
    ]


def change_strip(curve: Mapping[str, Any], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """The change as log2(candidate / baseline) from -4 to 4, its interval over the band of the noise floor.

    An end beyond the domain is drawn as an arrow at its edge. Words: same, change, interval_95, noise_floor, pairs.
    """
    t = TOKENS[mode]
    x = alt.X("start:Q", axis=None, scale=x_scale(-STRIP_END, STRIP_END))
    y = px("y", STRIP_HEIGHT)
    tips = tooltip(change=words["change"], ends=words["interval_95"], floor=words["noise_floor"], pairs=words["pairs"])
    shown = {
        "change": percent(curve["change_pct"], 2),
        "ends": interval(curve["ci95"], "%"),
        "floor": number(curve["noise_floor_pct"], 3, "%"),
        "pairs": exact(curve["pairs"]),
        "y": 12,
    }
    axis = [{"start": -STRIP_END, "end": STRIP_END, "y": 12}]
    marks = [{"start": at, "y": 12, "y_text": 32, "text": text} for at, text in _strip_ticks(words)]
    layers = [
        alt.Chart(data(axis)).mark_rule(color=t["border2"]).encode(x=x, x2=alt.X2("end:Q"), y=y),
        alt.Chart(data(marks)).mark_tick(thickness=1, height=7, color=t["border2"], orient="vertical").encode(x=x, y=y),
        alt.Chart(data(marks))
        .mark_text(fontSize=11.5, color=t["muted"], baseline="middle")
        .encode(x=x, y=px("y_text", STRIP_HEIGHT), text=alt.Text("text:N")),
        *_floor_band(curve["noise_floor_pct"], t, shown, x, tips),
        *_change_marks(curve, t, shown, x, tips),
    ]
    return finish(layers, mode, STRIP_HEIGHT)


def _strip_ticks(words: Mapping[str, str]) -> list[tuple[float, str]]:
    return [(-2.0, "÷4"), (0.0, words["same"]), (2.0, "×4")]


def _floor_band(
    floor_pct: float | None, t: Mapping[str, str], shown: dict[str, Any], x: alt.X, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    low, high = (_inside(_doublings(sign * (floor_pct or 0)) or 0.0) for sign in (-1, 1))
    row = {**shown, "start": low, "end": high, "top": 4, "bottom": 20}
    row["fill"] = t["border2"]
    least = {**shown, "start": 0, "y": 12}
    return [
        boxes([row], STRIP_HEIGHT, x).encode(tooltip=tips),
        alt.Chart(data([least]))
        .mark_tick(thickness=3, height=16, color=t["border2"], orient="vertical")
        .encode(x=x, y=px("y", STRIP_HEIGHT), tooltip=tips),
    ]


def _change_marks(
    curve: Mapping[str, Any], t: Mapping[str, str], shown: dict[str, Any], x: alt.X, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    """The interval, at least 4 px wide, with arrows where it leaves the strip; a dot where there is none."""
    y = px("y", STRIP_HEIGHT)
    change = _doublings(curve["change_pct"])
    if change is None:
        return []
    if curve["ci95"] is None:
        dots = [{**shown, "start": change}] if abs(change) <= STRIP_END else []
        dot = alt.Chart(data(dots)).mark_point(filled=True, size=46, opacity=1, color=t["cand"])
        return [dot.encode(x=x, y=y, tooltip=tips), *_arrows([change], t, shown, x, tips)]
    low, high = (_doublings(end) for end in curve["ci95"])
    assert low is not None and high is not None
    if low > STRIP_END or high < -STRIP_END:
        return _arrows([low, high], t, shown, x, tips)
    row = {**shown, "start": _inside(low), "end": _inside(high), "top": 6.5, "bottom": 17.5, "fill": t["cand"]}
    narrow = row["end"] - row["start"] < NARROW
    least = [{**shown, "start": (row["start"] + row["end"]) / 2}] if narrow else []
    return [
        boxes([row], STRIP_HEIGHT, x, cornerRadius=1).encode(tooltip=tips),
        alt.Chart(data(least))
        .mark_tick(thickness=4, height=11, color=t["cand"], opacity=1, orient="vertical")
        .encode(x=x, y=y, tooltip=tips),
        *_arrows([low, high], t, shown, x, tips),
    ]


def _arrows(
    ends: list[float], t: Mapping[str, str], shown: dict[str, Any], x: alt.X, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    sides = [
        ("triangle-left", -STRIP_END, min(ends) < -STRIP_END),
        ("triangle-right", STRIP_END, max(ends) > STRIP_END),
    ]
    return [
        alt.Chart(data([{**shown, "start": at}]))
        .mark_point(
            shape=shape, size=120, filled=True, opacity=1, color=t["cand_strong"], xOffset=math.copysign(6, -at)
        )
        .encode(x=x, y=px("y", STRIP_HEIGHT), tooltip=tips)
        for shape, at, leaves in sides
        if leaves
    ]


def _doublings(change_pct: float | None) -> float | None:
    """log2 of candidate / baseline; a ratio of nothing is far below the strip."""
    if change_pct is None:
        return None
    ratio = 1 + change_pct / 100
    return math.log2(ratio) if ratio > 0 else -1e3


def _inside(value: float) -> float:
    return max(-STRIP_END, min(STRIP_END, value))


def guess_chart(
    guess_pct: float | None,
    curve: Mapping[str, Any],
    mode: str,
    words: Mapping[str, str],
    *,
    predicted_pct: float | None = None,
) -> alt.LayerChart:
    """The learner's guess, the prediction (only when given) and the measured change in rows on one axis with 0.

    Words: your_guess, predicted, result, change, interval_95.
    """
    t = TOKENS[mode]
    asked = [("guess", guess_pct, words["your_guess"]), ("predicted", predicted_pct, words["predicted"])]
    rows: list[dict[str, Any]] = [
        {"kind": kind, "value": value, "name": name} for kind, value, name in asked if value is not None
    ]
    rows.append({"kind": "result", "value": curve["change_pct"], "name": words["result"]})
    for index, row in enumerate(rows):
        ends = curve["ci95"] if row["kind"] == "result" else None
        row |= {"y": GUESS_ROW * index + 12, "low": ends and ends[0], "high": ends and ends[1]}
        row |= {"text": percent(row["value"]), "shown": percent(row["value"], 2), "ends": interval(ends, "%")}
    values = [row[key] for row in rows for key in ("value", "low", "high") if row[key] is not None]
    shown = ticks(min(0.0, *values, 0.0), max(0.0, *values, 0.0), 4) if any(values) else [-1.0, 0.0, 1.0]
    height = GUESS_ROW * len(rows) + 4
    placed = _placed(rows, (shown[0] + shown[-1]) / 2)
    early = shown[0] + 0.2 * (shown[-1] - shown[0])  # a value left of a mark that lies before it would meet the name
    met = (text_px(row["text"]) for row in placed if not row["right"] and row["value"] < early)
    left = max(text_px(row["name"], 12.5) for row in rows) + 14 + max(met, default=0)
    axis = tick_axis(shown, "%", signed=True)
    x = alt.X("value:Q", axis=axis, scale=x_scale(shown[0], shown[-1], left=left, right=8))
    tips = tooltip(name=words["result"], shown=words["change"], ends=words["interval_95"])
    names = [{"text": row["name"], "y": row["y"], "colour": _row_colour(row, t)} for row in rows]
    zero = alt.Chart(data([{"value": 0, "top": 0, "bottom": height}])).mark_rule(color=t["border2"])
    layers = [
        zero.encode(x=x, y=px("top", height), y2=alt.Y2("bottom:Q")),
        *(_guess_mark([row for row in rows if row["kind"] == kind], kind, t, x, height, tips) for kind in _KINDS),
        *_result_interval([row for row in rows if row["low"] is not None], t, x, height, tips),
        label(names, height, alt.value(0), align="left"),
        *_guess_values(placed, t, x, height),
    ]
    return finish(layers, mode, height)


_KINDS: dict[str, dict[str, Any]] = {
    "guess": {"type": "point", "shape": "diamond", "size": 70, "filled": False, "strokeWidth": 1.6, "opacity": 1},
    "predicted": {"type": "tick", "thickness": 2.2, "height": 16, "orient": "vertical", "opacity": 1},
    "result": {"type": "point", "shape": "circle", "size": 60, "filled": True, "opacity": 1},
}
_KIND_TOKEN = {"guess": "base", "predicted": "text", "result": "cand"}


def _row_colour(row: Mapping[str, Any], t: Mapping[str, str]) -> str:
    return t["text"] if row["kind"] == "result" else t["muted"]


def _guess_mark(
    rows: list[dict[str, Any]], kind: str, t: Mapping[str, str], x: alt.X, height: float, tips: list[alt.Tooltip]
) -> alt.Chart:
    known = [row for row in rows if row["value"] is not None]
    mark = alt.MarkDef(color=t[_KIND_TOKEN[kind]], **_KINDS[kind])
    return alt.Chart(data(known), mark=mark).encode(x=x, y=px("y", height), tooltip=tips)


def _result_interval(
    rows: list[dict[str, Any]], t: Mapping[str, str], x: alt.X, height: float, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    line = [{**row, "value": row["low"]} for row in rows]
    return [
        alt.Chart(data(line))
        .mark_rule(strokeWidth=2.4, color=t["cand"])
        .encode(x=x, x2=alt.X2("high:Q"), y=px("y", height), tooltip=tips)
    ]


def _placed(rows: list[dict[str, Any]], middle: float) -> list[dict[str, Any]]:
    """Where each value is written: beside its mark, on the side with more room."""
    placed = []
    for row in rows:
        known = row["value"] is not None
        right = not known or (row["high"] if row["high"] is not None else row["value"]) <= middle
        edge = row["high"] if right else row["low"]
        placed.append({**row, "value": (row["value"] if edge is None else edge) if known else 0, "right": right})
    return placed


def _guess_values(placed: list[dict[str, Any]], t: Mapping[str, str], x: alt.X, height: float) -> list[alt.Chart]:
    sides = [(True, "left", 9), (False, "right", -9)]
    return [
        label([row for row in placed if row["right"] is side], height, x, colour=t["text"], align=align, dx=dx)
        for side, align, dx in sides
    ]
