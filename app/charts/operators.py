"""The operators of a step: a group of bars each, one bar an arm, for their time or for their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    boxes,
    exact,
    finish,
    label,
    legend,
    number,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.charts.roofline import time_unit
from app.theme import REQUESTS, TOKENS

BAR, GAP = 11.0, 10.0
NAME_PX = 12
MOST_NAME_PX = 150.0


def operators_chart(
    rows: Sequence[Mapping[str, Any]], arms: Sequence[str], of: str, mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """Bars from zero, operators in the order of `rows`, so that two charts of the same rows stand in line.

    A row: name, full (its whole name), launches, seconds, shares, each by arm, None where the operator is not in it.
    arms: their names, [""] for one alone. of: "seconds" or "launches". Words: operator, arm, launches, duration,
    time_share.
    """
    colours = arm_colours(len(arms), mode)
    group = BAR * len(arms) + GAP
    height = group * max(1, len(rows)) + 4
    largest = max([1e-12, *(value for row in rows for value in row[of] if value is not None)])
    scale, unit = time_unit(largest) if of == "seconds" else (1.0, "")
    room = min(MOST_NAME_PX, max((text_px(row["name"], NAME_PX) for row in rows), default=0.0)) + 8
    top = largest * scale
    shown = [tick for tick in ticks(0, top, 3) if tick <= top * 1.0001]
    x = alt.X("start:Q", axis=tick_axis(shown, unit), scale=x_scale(0, top, left=room, right=52))
    bars = [
        bar for index, row in enumerate(rows) for bar in _bars(row, arms, of, scale, 2 + group * index, colours, unit)
    ]
    tips = tooltip(full=words["operator"], arm=words["arm"], count=words["launches"], took=words["duration"],
                   time_share=words["time_share"])  # fmt: skip
    names = [{"text": row["name"], "y": 2 + group * index + BAR * len(arms) / 2} for index, row in enumerate(rows)]
    layers = [
        boxes(bars, height, x, cornerRadiusEnd=2).encode(tooltip=tips),
        label(names, height, alt.value(0), colour=TOKENS[mode]["text"], align="left", fontSize=NAME_PX, limit=room - 8),
        label([{**bar, "start": bar["end"]} for bar in bars], height, x, colour=TOKENS[mode]["muted"], align="left",
              dx=4, fontSize=11),
    ]  # fmt: skip
    if len(arms) > 1:
        layers.insert(0, legend([Swatch(*pair) for pair in zip(arms, colours, colours, strict=True)], height))
    return finish(layers, mode, height)


def arm_colours(count: int, mode: str) -> list[str]:
    """Grey for the baseline, blue for the first candidate, then others; blue for one arm alone."""
    t = TOKENS[mode]
    if count == 1:
        return [t["cand"]]
    return [t["base"], t["cand"], *REQUESTS[mode][1::2]][:count]


def _bars(
    row: Mapping[str, Any], arms: Sequence[str], of: str, scale: float, top: float, colours: Sequence[str], unit: str
) -> list[dict[str, Any]]:
    placed = []
    for place, (arm, value) in enumerate(zip(arms, row[of], strict=True)):
        if value is None:
            continue
        y = top + BAR * place
        time, time_name = time_unit(row["seconds"][place])
        share = row["shares"][place]
        placed.append(
            {
                "start": 0,
                "end": value * scale,
                "top": y + 0.5,
                "bottom": y + BAR - 0.5,
                "y": y + BAR / 2,
                "fill": colours[place],
                "full": row["full"],
                "arm": arm or "–",
                "count": exact(row["launches"][place]),
                "took": exact(round(row["seconds"][place] * time, 4), time_name),
                "time_share": "–" if share is None else f"{100 * share:.1f} %",
                "text": number(value * scale, 3) if of == "seconds" else f"{value:,}",
            }
        )
    return placed
