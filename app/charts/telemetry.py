"""A small chart of what a device did over the time of a run; several stand under one another on the same axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip, x_scale
from app.theme import TOKENS

HEIGHT = 84.0
AXIS_PX = 46  # as wide in every panel, so that their times stand in line
PAINTS = ("cand", "base_strong")
FROM_DATA = ("temperature", "clocks", "memory")  # from zero these would be flat lines at the top


def telemetry_chart(
    name: str,
    lines: Mapping[str, Sequence[tuple[float, float | None]]],
    end_s: float,
    mode: str,
    words: Mapping[str, str],
    top: float | None = None,
) -> alt.LayerChart:
    """The lines of one panel: (s, value), None interrupts. end_s ends the time axis; top, if any, the value axis, so
    that two charts can share them. Words: time, value, and the name of each line.
    """
    t = TOKENS[mode]
    values = [value for line in lines.values() for _, value in line if value is not None]
    low = min(values, default=0.0) if name in FROM_DATA else 0.0
    up = ticks(low, max([top or 0.0, *values], default=1.0), 3)
    across = ticks(0, end_s, 6)
    x = alt.X("t:Q", axis=tick_axis(across, "s"), scale=x_scale(0, across[-1]))
    axis = tick_axis(up)
    axis.minExtent = axis.maxExtent = AXIS_PX
    y = alt.Y("v:Q", axis=axis, scale=alt.Scale(domain=[up[0], up[-1]], nice=False, zero=False), title=None)
    tips = tooltip(name=words["label"], when=words["time"], shown=words["value"])
    layers: list[Any] = []
    if len(lines) > 1:
        paints = [t[paint] for paint in PAINTS]
        swatches = [Swatch(words[one], paint, paint, "M-1,0L1,0") for one, paint in zip(lines, paints, strict=False)]
        layers.append(legend(swatches, HEIGHT, pixels=False))
    for paint, (one, line) in zip(PAINTS, lines.items(), strict=False):
        rows = [
            {"t": at, "v": value, "name": words[one], "when": exact(at, "s"),
             "shown": exact(None if value is None else round(value, 3))}
            for at, value in line
        ]  # fmt: skip
        chart = alt.Chart(data(rows))
        layers.append(chart.mark_line(color=t[paint], strokeWidth=1.8, tooltip=None).encode(x=x, y=y))
        layers.append(chart.mark_point(size=60, opacity=0).encode(x=x, y=y, tooltip=tips))
    return finish(layers, mode, HEIGHT)
