"""What a month costs as it is, and what it would cost with each lever pulled alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import boxes, finish, label, number, percent, text_px, tick_axis, ticks, tooltip, x_scale
from app.theme import TOKENS

ROW = 46
BAR_TOP, BAR_HEIGHT = 20, 16


def levers_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """A bar a lever from zero, its name above it and cost and change at the right; what is saved is outlined.

    A row: name, cost (a month), is_base, change_pct (None for the base or where it is not known), how. A cost of None
    draws no bar. Words: lever, month_cost, change, how, currency.
    """
    t = TOKENS[mode]
    height = float(ROW * len(rows))
    base = max([row["cost"] for row in rows if row["is_base"] and row["cost"] is not None], default=0.0)
    longest = max([1e-9, base, *(row["cost"] for row in rows if row["cost"] is not None)])
    across = [tick for tick in ticks(0, longest, 5) if tick <= longest * 1.0001]
    x = alt.X("start:Q", axis=tick_axis(across), scale=x_scale(0, longest, right=2))
    bars: list[dict[str, Any]] = []
    saved: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        y = ROW * index + 9
        name_colour = t["text"] if row["is_base"] else t["cand"]
        names.append({"text": row["name"], "y": y, "colour": name_colour})
        notes.append({"text": _note(row), "y": y})
        if row["cost"] is None:
            continue
        place = {"top": ROW * index + BAR_TOP, "bottom": ROW * index + BAR_TOP + BAR_HEIGHT}
        tip = {
            "name": row["name"],
            "cost_text": number(row["cost"], 6),
            "change_text": percent(row["change_pct"]),
            "how": row["how"],
        }
        paint = t["base"] if row["is_base"] else t["cand"]
        bars.append({"start": 0, "end": row["cost"], "fill": paint, **place, **tip})
        if row["cost"] < base:
            saved.append({"start": row["cost"], "end": base, "fill": t["grid"], **place, **tip})
    tips = tooltip(name=words["lever"], cost_text=words["month_cost"], change_text=words["change"], how=words["how"])
    reserve = max((text_px(note["text"]) for note in notes), default=0) + 10
    layers = [
        boxes(saved, height, x).encode(tooltip=tips),
        boxes(bars, height, x, cornerRadiusEnd=2).encode(tooltip=tips),
        label(names, height, alt.value(0), align="left", fontWeight=600, limit=alt.ExprRef(f"width - {reserve:.0f}")),
        label(notes, height, alt.value(alt.ExprRef("width")), colour=t["text"], align="right", fontWeight=600),
    ]
    return finish(layers, mode, height)


def _note(row: Mapping[str, Any]) -> str:
    cost = number(row["cost"], 4)
    return cost if row["change_pct"] is None else f"{cost} · {percent(row['change_pct'])}"
