"""Plans: tokens/s that a user sees against tokens/s of a card, every point simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, tick_axis, ticks, tooltip
from app.theme import TOKENS

HEIGHT = 300.0
SIZES = {"simulated": 40, "front": 60, "plan": 190}


def plan_chart(marks: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """A mark: kind ("simulated" a replica at its limit, "front" one that none beats, "plan" a plan at its own load),
    name, id (the plan's number), per_user, per_card, cost (or None). Everything is in the simulated colour.

    Words: plan_mark, front_mark, replica_mark, per_user, per_card, deployment, plan_cost.
    """
    t = TOKENS[mode]
    across = ticks(0, max(mark["per_user"] for mark in marks))
    up = ticks(0, max(mark["per_card"] for mark in marks))
    x_axis = tick_axis(across)
    x_axis.title = words["per_user"]
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, across[-1]], nice=False), axis=x_axis)
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, up[-1]], nice=False), axis=tick_axis(up))
    rows = [_row(mark) for mark in marks]
    tips = tooltip(name=words["deployment"], user=words["per_user"], card=words["per_card"], cost=words["plan_cost"])
    layers: list[alt.Chart] = []
    on_front = sorted((row for row in rows if row["kind"] == "front"), key=lambda row: row["x"])
    if len(on_front) > 1:
        line = alt.Chart(data(on_front)).mark_line(color=t["simulated"], strokeDash=[5, 3], strokeWidth=1.4)
        layers.append(line.encode(x=x, y=y))
    for kind in ("simulated", "front", "plan"):
        own = [row for row in rows if row["kind"] == kind]
        if own:
            hollow = kind == "simulated"
            point = alt.Chart(data(own)).mark_point(
                size=SIZES[kind], filled=not hollow, opacity=1, color=t["simulated"], strokeWidth=1.4,
                shape="square" if kind == "plan" else "circle",
            )  # fmt: skip
            layers.append(point.encode(x=x, y=y, tooltip=tips))
    plans = [row for row in rows if row["kind"] == "plan"]
    numbers = alt.Chart(data(plans)).mark_text(color=t["in_fill"], fontSize=11, fontWeight=600, tooltip=None)
    layers.append(numbers.encode(x=x, y=y, text=alt.Text("id:N")))
    colour = t["simulated"]
    swatches = [
        Swatch(words["plan_mark"], colour, colour, "square"),
        Swatch(words["front_mark"], colour, colour, "circle"),
        Swatch(words["replica_mark"], "transparent", colour, "circle"),
    ]
    return finish([legend(swatches, HEIGHT, pixels=False), *layers], mode, HEIGHT)


def _row(mark: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": mark["kind"],
        "id": mark["id"],
        "name": mark["name"],
        "x": mark["per_user"],
        "y": mark["per_card"],
        "user": exact(round(mark["per_user"], 2)),
        "card": exact(round(mark["per_card"], 1)),
        "cost": exact(None if mark["cost"] is None else round(mark["cost"], 4)),
    }
