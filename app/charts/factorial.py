"""The four arms of a 2 x 2 experiment: one line for each value of the second variable, and where their product is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip
from app.theme import TOKENS

HEIGHT = 260.0


def interaction_chart(
    arms: Sequence[Mapping[str, Any]], product: float | None, mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """A curve over the first variable's two values, a line for each value of the second.

    arms: four of {"first", "second", "is_candidate", "value"}, is_candidate that of the second variable. product: where
    both together would be if their gains multiplied, an open circle. Words: arm, value, product.
    """
    t = TOKENS[mode]
    up = ticks(0, 1.1 * max([*(arm["value"] for arm in arms), product or 0.0]), 5)
    x = alt.X("first:N", title=None, sort=list(dict.fromkeys(arm["first"] for arm in arms)),
              axis=alt.Axis(labelAngle=0, labelLimit=240))  # fmt: skip
    y = alt.Y("value:Q", title=None, scale=alt.Scale(domain=[0, up[-1]], nice=False), axis=tick_axis(up))
    tips = tooltip(arm=words["arm"], shown=words["value"])
    layers: list[alt.Chart] = []
    swatches = []
    for is_candidate, colour in ((False, t["base_strong"]), (True, t["cand"])):
        own = [_row(arm) for arm in arms if arm["is_candidate"] == is_candidate]
        chart = alt.Chart(data(own))
        layers.append(chart.mark_line(color=colour, strokeWidth=2.2, tooltip=None).encode(x=x, y=y))
        layers.append(chart.mark_point(color=colour, filled=True, size=70, opacity=1).encode(x=x, y=y, tooltip=tips))
        swatches.append(Swatch(own[0]["second"], colour, colour))
    if product is not None:
        row = {"first": arms[-1]["first"], "value": product, "arm": words["product"], "shown": exact(product)}
        ring = alt.Chart(data([row]))
        layers.append(ring.mark_point(color=t["text"], filled=False, size=120).encode(x=x, y=y, tooltip=tips))
    return finish([*layers, legend(swatches, HEIGHT, pixels=False)], mode, HEIGHT)


def _row(arm: Mapping[str, Any]) -> dict[str, Any]:
    return {**arm, "arm": f"{arm['first']}, {arm['second']}", "shown": exact(arm["value"])}
