"""What each lever was seen to save: a mark with its interval around nothing saved, a row a lever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import data, finish, interval, label, percent, px, text_px, tick_axis, ticks, tooltip, x_scale
from app.theme import TOKENS

ROW = 34
GAP = 12


def savings_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart | None:
    """A row: name, saved (% of the cost of a request, negative where it became dearer), ends ([low, high] or None),
    verdict (a text), is_all (all levers together). None when no row has a saving. Words: lever, saved, interval_95,
    verdict."""
    t = TOKENS[mode]
    shown = [row for row in rows if row["saved"] is not None]
    if not shown:
        return None
    values = [0.0, *(value for row in shown for value in (row["saved"], *(row["ends"] or ())))]
    across = ticks(min(values), max(values), 5)
    height = float(ROW * len(shown))
    names = max(text_px(str(row["name"])) for row in shown) + GAP
    x, low = (
        alt.X(f"{end}:Q", axis=tick_axis(across, "%"), scale=x_scale(across[0], across[-1], left=names))
        for end in ("saved", "low")
    )
    marks = [_mark(place, row, t) for place, row in enumerate(shown)]
    tips = tooltip(name=words["lever"], shown=words["saved"], interval=words["interval_95"], verdict=words["verdict"])
    y = px("y", height)
    zero = alt.Chart(data([{"saved": 0}])).mark_rule(color=t["base"], strokeDash=[4, 3], strokeWidth=1.4).encode(x=x)
    layers = [zero]
    for mark in marks:
        one = alt.Chart(data([mark]))
        bar = one.mark_rule(color=mark["colour"], strokeWidth=2.2)
        layers += [
            bar.encode(x=low, x2=alt.X2("high:Q"), y=y, tooltip=tips),
            one.mark_point(filled=True, size=80, opacity=1, color=mark["colour"]).encode(x=x, y=y, tooltip=tips),
        ]
    layers.append(label(marks, height, alt.value(0), align="left", fontWeight=600))
    return finish(layers, mode, height)


def _mark(place: int, row: Mapping[str, Any], t: Mapping[str, str]) -> dict[str, Any]:
    low, high = row["ends"] or (row["saved"], row["saved"])
    return {
        "name": row["name"],
        "text": row["name"],
        "saved": row["saved"],
        "low": low,
        "high": high,
        "y": ROW * place + ROW / 2,
        "shown": percent(row["saved"]),
        "interval": interval(None if row["ends"] is None else [round(end, 1) for end in row["ends"]], "%"),
        "verdict": row["verdict"],
        "colour": t["base_strong"] if row["is_all"] else t["cand"],
    }
