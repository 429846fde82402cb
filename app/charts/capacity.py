"""What one device holds: a bar of accounts a KV precision, against the usable limit and the capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    boxes,
    data,
    exact,
    finish,
    label,
    legend,
    outlines,
    px,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

GIB = 2**30
HEAD = 40
ROW = 58
BAR_TOP, BAR_HEIGHT = 20, 26
# account -> fill token and word; in the order of the bar.
PAINTS = {
    "weights": ("weights", "weights"),
    "kv_cache": ("kv_used", "kv_cache"),
    "state": ("cached", "state_account"),
    "activations": ("activations", "activations"),
    "other": ("other", "other"),
}
PALE = ("other",)


def capacity_chart(
    rows: Sequence[Mapping[str, Any]],
    usable_bytes: int | None,
    capacity_bytes: int | None,
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """One stacked bar a row in GiB; a dashed line is the usable limit, a solid one what the device has.

    A row: name, is_chosen, segments [{account, bytes}] with accounts of PAINTS, and left_bytes: what stays free under
    the limit, negative when the row needs more, None without a limit. Words: weights, kv_cache, state_account,
    activations, other, usable and capacity with {value}, left and over with {value}, account, memory, precision.
    """
    t = TOKENS[mode]
    height = float(HEAD + ROW * len(rows))
    segments = [segment for index, row in enumerate(rows) for segment in _segments(index, row, t, words)]
    furthest = max([1e-9, *(segment["end"] for segment in segments), (capacity_bytes or 0) / GIB])
    shown = ticks(0, furthest, 6)
    end = max(furthest, 1e-9)
    axis = tick_axis([tick for tick in shown if tick <= end * 1.0001], "GiB")
    x = alt.X("start:Q", axis=axis, scale=x_scale(0, end, right=2))
    used = [name for name in PAINTS if any(segment["account"] == name for segment in segments)]
    swatches = [Swatch(words[PAINTS[name][1]], *_paint(name, t)) for name in used]
    tips = tooltip(name=words["precision"], title=words["account"], exact=words["memory"])
    layers = [
        legend(swatches, height),
        *_reserve(len(rows), usable_bytes, capacity_bytes, t, height, x),
        boxes(segments, height, x).encode(tooltip=tips),
        outlines(segments, height, x, tooltip=None),
        *_inside(segments, end, height, x, tips),
        *_limits(usable_bytes, capacity_bytes, end, t, height, x, words),
        *_headings(rows, t, height, words),
    ]
    return finish(layers, mode, height)


def _paint(account: str, t: Mapping[str, str]) -> tuple[str, str]:
    fill = t[PAINTS[account][0]]
    return fill, t["base"] if account in PALE else fill


def _segments(
    index: int, row: Mapping[str, Any], t: Mapping[str, str], words: Mapping[str, str]
) -> list[dict[str, Any]]:
    start, placed = 0.0, []
    top = HEAD + ROW * index + BAR_TOP
    sizes = {segment["account"]: segment["bytes"] for segment in row["segments"] if segment["bytes"]}
    for account in (name for name in PAINTS if name in sizes):
        gib = sizes[account] / GIB
        fill, stroke = _paint(account, t)
        placed.append(
            {
                "name": row["name"],
                "account": account,
                "title": words[PAINTS[account][1]],
                "start": start,
                "end": start + gib,
                "gib": gib,
                "short": _gib(gib),
                "long": f"{words[PAINTS[account][1]]} {_gib(gib)}",
                "exact": f"{exact(round(gib, 4), 'GiB')} = {sizes[account]:,} B",
                "top": top,
                "bottom": top + BAR_HEIGHT,
                "y": top + BAR_HEIGHT / 2,
                "fill": fill,
                "stroke": stroke,
                "colour": t["text"] if account in PALE else t["in_fill"],
            }
        )
        start += gib
    return placed


def _inside(
    segments: Sequence[Mapping[str, Any]], end: float, height: float, x: alt.X, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    """Account and number where both have room, else the number, else nothing: the tooltip has it."""
    layers = []
    for field in ("long", "short"):
        placed = [
            {
                **row,
                "text": row[field],
                "start": (row["start"] + row["end"]) / 2,
                "need": text_px(row["short"]) + 6,
                "need_long": text_px(row["long"]) + 10,
            }
            for row in segments
        ]
        size = f"datum.gib / {end!r} * width"
        fits = f"{size} >= datum.need_long"
        test = fits if field == "long" else f"!({fits}) && {size} >= max(20, datum.need)"
        chart = label(placed, height, x, align="center", fontWeight=600)
        layers.append(chart.encode(tooltip=tips).transform_filter(test))
    return layers


def _reserve(
    rows: int, usable: int | None, capacity: int | None, t: Mapping[str, str], height: float, x: alt.X
) -> list[alt.Chart]:
    """A pale band behind each bar from the usable limit to the capacity: what is kept back."""
    if usable is None or capacity is None or usable >= capacity:
        return []
    bands = [
        {
            "start": usable / GIB,
            "end": capacity / GIB,
            "top": HEAD + ROW * index + BAR_TOP,
            "bottom": HEAD + ROW * index + BAR_TOP + BAR_HEIGHT,
            "fill": t["grid"],
        }
        for index in range(rows)
    ]
    return [boxes(bands, height, x, tooltip=None)]


def _limits(
    usable: int | None,
    capacity: int | None,
    end: float,
    t: Mapping[str, str],
    height: float,
    x: alt.X,
    words: Mapping[str, str],
) -> list[alt.Chart]:
    layers = []
    # The label of the usable limit ends at its line and lies below that of the capacity, so that neither line crosses a
    # label; where there is no room at the left it is the other way round.
    left = usable is not None and usable / GIB < 0.25 * end
    rows = {"usable": 10 if left else 26, "capacity": 26 if left else 10}
    lines = [("usable", usable, 1.4, [4, 3], "left" if left else "right"), ("capacity", capacity, 1.8, [1, 0], "")]
    for word, size, thickness, dash, align in lines:
        if size is None:
            continue
        place, y = size / GIB, rows[word]
        row = {"start": place, "top": y + 8, "bottom": height, "y": y, "text": words[word].format(value=_gib(place))}
        rule = alt.Chart(data([row])).mark_rule(color=t["text"], strokeWidth=thickness, strokeDash=dash, tooltip=None)
        layers.append(rule.encode(x=x, y=px("top", height), y2=alt.Y2("bottom:Q")))
        side = align or ("right" if place > 0.75 * end else "left")
        layers.append(label([row], height, x, colour=t["text"], align=side, fontSize=12))
    return layers


def _headings(
    rows: Sequence[Mapping[str, Any]], t: Mapping[str, str], height: float, words: Mapping[str, str]
) -> list[alt.Chart]:
    names, notes = [], []
    for index, row in enumerate(rows):
        y = HEAD + ROW * index + 9
        names.append({"text": row["name"], "y": y, "colour": t["cand"] if row["is_chosen"] else t["text"]})
        left = row["left_bytes"]
        if left is not None:
            word, colour = ("left", "better") if left >= 0 else ("over", "worse")
            notes.append({"text": words[word].format(value=_gib(abs(left) / GIB)), "y": y, "colour": t[colour]})
    behind = max((text_px(row["name"], 13.2) for row in rows), default=0) + 12
    return [
        label(names, height, alt.value(0), align="left", fontWeight=600),
        label(notes, height, alt.value(behind), align="left", fontWeight=600),
    ]


def _gib(value: float) -> str:
    """Two decimals, as everywhere on the page; the tooltip has more."""
    return f"{value:,.2f}"
