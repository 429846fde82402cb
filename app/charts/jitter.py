"""Gaps between tokens over time, a line an arm: where prompts are computed is where the gaps are long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip
from app.theme import REQUESTS, TOKENS

HEIGHT = 280.0


def jitter_chart(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """A row: arm, t_s, itl_ms (None: no gap ended in it), prompt_tokens. names: arm -> its name for readers; the first
    is the baseline, in grey. Words: longest_gap, from_start, arm, prompt_tokens."""
    t = TOKENS[mode]
    colours = {arm: t["base_strong"] if place == 0 else REQUESTS[mode][place - 1] for place, arm in enumerate(names)}
    shown = [_mark(row, names) for row in rows if row["itl_ms"] is not None]
    across = ticks(0, max([1.0, *(row["x"] for row in shown)]))
    up = ticks(0, max([1.0, *(row["y"] for row in shown)]))
    x_axis = tick_axis(across, "s")
    x_axis.title = words["from_start"]
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, across[-1]], nice=False), axis=x_axis)
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, up[-1]], nice=False), axis=tick_axis(up, "ms"))
    tips = tooltip(name=words["arm"], gap=words["longest_gap"], tokens=words["prompt_tokens"])
    layers = []
    for arm, colour in colours.items():
        chart = alt.Chart(data([row for row in shown if row["arm"] == arm]))
        layers.append(chart.mark_line(color=colour, strokeWidth=1.8, tooltip=None).encode(x=x, y=y))
        layers.append(chart.mark_point(color=colour, size=26, filled=True, opacity=1).encode(x=x, y=y, tooltip=tips))
    swatches = [Swatch(names[arm], colour, colour, "circle") for arm, colour in colours.items()]
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _mark(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "arm": row["arm"],
        "name": names[row["arm"]],
        "x": row["t_s"],
        "y": row["itl_ms"],
        "gap": exact(round(row["itl_ms"], 2), "ms"),
        "tokens": f"{row['prompt_tokens']:,}",
    }
