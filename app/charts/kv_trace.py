"""The KV pool over time: which request held which blocks, and the pool by kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from app.charts.common import Swatch, data, exact, finish, legend, text_px, tick_axis, ticks, tooltip, x_scale
from app.theme import REQUESTS, TOKENS

MIB = 2**20
MAP_HEIGHT = 230.0
KINDS_HEIGHT = 200.0
HELD_OPACITY = 0.4
LABEL_PX = 12
# kind -> fill token and word; from the bottom of the stack to its top.
STACK = {
    "used": ("kv_used", "kind_used"),
    "reserved_ahead": ("queue_cand", "kind_reserved_ahead"),
    "held": ("base", "kind_held"),
    "internal": ("activations", "kind_internal"),
    "reserved_unused": ("kv_reserved", "kind_reserved_unused"),
    "cached": ("cached", "kind_cached"),
    "free": ("card", "kind_free"),
}
STATES = {"running": "running_cell", "held": "held_cell", "cached": "cached_cell"}


def block_timeline(
    cells: Sequence[Mapping[str, Any]],
    num_blocks: int,
    end_s: float,
    mode: str,
    words: Mapping[str, str],
    states: Collection[str] = ("running", "held", "cached"),
) -> alt.LayerChart:
    """Blocks up, time across, a colour a request; paler where a finished request still holds its slot.

    A cell: first, last (blocks, both included), start_s, end_s, state, request, number. num_blocks and end_s are the
    ends of the axes, states the legend, so that two charts can share them.
    Words: running_cell, held_cell, cached_cell, free_cell, block, owner, state, from_s, to_s.
    """
    t = TOKENS[mode]
    rows = [_cell(cell, mode, words) for cell in cells]
    across, up = ticks(0, end_s, 6), ticks(0, num_blocks, 4)
    top = max(num_blocks, 1)
    x = alt.X("start:Q", axis=tick_axis(across, "s"), scale=x_scale(0, across[-1]))
    shown = [tick for tick in up if tick <= top]
    y = alt.Y("low:Q", axis=tick_axis(shown), scale=alt.Scale(domain=[0, top], nice=False), title=None)
    tips = tooltip(owner=words["owner"], state=words["state"], block=words["block"])
    tips += tooltip(**{"from": words["from_s"], "to": words["to_s"]})
    rects = alt.Chart(data(rows)).mark_rect(stroke=t["card"], strokeWidth=0.4).encode(
        x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("high:Q"), color=alt.Color("fill:N", scale=None),
        opacity=alt.Opacity("opacity:Q", scale=None), tooltip=tips,
    )  # fmt: skip
    room = f"(datum.end - datum.start) / {across[-1]!r} * width > datum.need"
    tall = [cell for cell in cells if (cell["last"] + 1 - cell["first"]) / top * MAP_HEIGHT > LABEL_PX + 2]
    names = (
        alt.Chart(data(_name(cell, mode) for cell in tall))
        .mark_text(baseline="middle", fontSize=LABEL_PX, fontWeight=600, tooltip=None)
        .encode(
            x=alt.X("middle:Q"), y=alt.Y("centre:Q"), text=alt.Text("label:N"), color=alt.Color("ink:N", scale=None)
        )
        .transform_filter(room)
    )
    paints = {"running": t["cand"], "held": t["kv_reserved"], "cached": t["cached"]}
    swatches = [Swatch(words[STATES[state]], paint, paint) for state, paint in paints.items() if state in states]
    swatches.append(Swatch(words["free_cell"], t["card"], t["queue_base"]))
    return finish([legend(swatches, MAP_HEIGHT, pixels=False), rects, names], mode, MAP_HEIGHT)


def _cell(cell: Mapping[str, Any], mode: str, words: Mapping[str, str]) -> dict[str, Any]:
    t, state, palette = TOKENS[mode], cell["state"], REQUESTS[mode]
    first, last = cell["first"], cell["last"]
    return {
        "start": cell["start_s"],
        "end": cell["end_s"],
        "low": first,
        "high": last + 1,
        "fill": t["cached"] if state == "cached" else palette[cell["number"] % len(palette)],
        "opacity": HELD_OPACITY if state == "held" else 1.0,
        "owner": cell["request"] or "–",
        "state": words[STATES[state]],
        "block": str(first) if first == last else f"{first}–{last}",
        "from": exact(round(cell["start_s"], 3), "s"),
        "to": exact(round(cell["end_s"], 3), "s"),
    }


def _name(cell: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """The owner's name in the middle of its cell, and the pixels that it needs."""
    name = cell["request"] or ""
    return {
        "start": cell["start_s"],
        "end": cell["end_s"],
        "middle": (cell["start_s"] + cell["end_s"]) / 2,
        "centre": (cell["first"] + cell["last"] + 1) / 2,
        "label": name,
        "need": text_px(name, LABEL_PX) + 6,
        "ink": TOKENS[mode]["text" if cell["state"] == "held" else "in_fill"],
    }


def kinds_chart(
    series: Sequence[Mapping[str, float]],
    pool_bytes: float,
    end_s: float,
    mode: str,
    words: Mapping[str, str],
    kinds: Collection[str] | None = None,
) -> alt.LayerChart:
    """The pool in MiB by kind, stacked, over time; a dashed line marks the free part outside of the longest free run.

    A row of series: t_s, the bytes of each of STACK, and external. pool_bytes and end_s are the ends of the axes, kinds
    (by default those there are) the legend, so that two charts can share them.
    Words: kind_used, kind_held, kind_internal, kind_reserved_ahead, kind_reserved_unused, kind_cached, kind_free,
    kind_external, time.
    """
    t = TOKENS[mode]
    across, up = ticks(0, end_s, 6), ticks(0, pool_bytes / MIB, 4)
    x = alt.X("t:Q", axis=tick_axis(across, "s"), scale=x_scale(0, across[-1]))
    scale = alt.Scale(domain=[0, max(pool_bytes / MIB, 1e-9)], nice=False)
    axis = tick_axis([tick for tick in up if tick <= pool_bytes / MIB], "MiB")
    y = alt.Y("low:Q", axis=axis, scale=scale, title=None)
    stacked = [_stack(row) for row in series]
    layers = []
    for kind, (token, _) in STACK.items():
        if kind == "free" or not any(row[kind] for row in series):
            continue
        rows = [{"t": row["t"], "low": row[kind][0], "high": row[kind][1]} for row in stacked]
        area = alt.Chart(data(rows)).mark_area(interpolate="step", color=t[token], opacity=1, tooltip=None)
        layers.append(area.encode(x=x, y=y, y2=alt.Y2("high:Q")))
    shown = kinds_in(series) if kinds is None else kinds
    swatches = [
        Swatch(words[word], t[token], t["queue_base"] if kind == "free" else t[token])
        for kind, (token, word) in STACK.items()
        if kind in shown
    ]
    if "external" in shown:
        swatches.append(Swatch(words["kind_external"], t["text"], t["text"], "M-1,0L1,0"))
    if any(row["external"] for row in series):
        line = [{"t": row["t"], "low": row["edge"]} for row in stacked]
        layers.append(
            alt.Chart(data(line))
            .mark_line(interpolate="step", strokeDash=[4, 3], strokeWidth=1.4, color=t["text"], tooltip=None)
            .encode(x=x, y=y)
        )
    layers.append(_kinds_tooltip(stacked, series, x, y, words))
    return finish([legend(swatches, KINDS_HEIGHT, pixels=False), *layers], mode, KINDS_HEIGHT)


def kinds_in(series: Sequence[Mapping[str, float]]) -> set[str]:
    """The kinds that a legend must name: used and free always, others where there are any bytes of them."""
    return {"used", "free", *(kind for row in series for kind in (*STACK, "external") if row[kind])}


def _stack(row: Mapping[str, float]) -> dict[str, Any]:
    """Where each kind begins and ends in MiB, and where the free part outside of the longest run begins."""
    edges = [0.0]
    for kind in STACK:
        edges.append(edges[-1] + row[kind] / MIB)
    places = dict(zip(STACK, pairwise(edges), strict=True))
    return {"t": row["t_s"], **places, "edge": edges[-1] - row["external"] / MIB}


def _kinds_tooltip(
    stacked: Sequence[Mapping[str, Any]],
    series: Sequence[Mapping[str, float]],
    x: alt.X,
    y: alt.Y,
    words: Mapping[str, str],
) -> alt.Chart:
    """An invisible rule at each moment that tells all kinds."""
    kinds = [*STACK, "external"]
    rows = [
        {
            "t": place["t"],
            "low": 0,
            "high": place["free"][1],
            "when": exact(round(row["t_s"], 3), "s"),
            **{f"text_{kind}": exact(round(row[kind] / MIB, 3), "MiB") for kind in kinds},
        }
        for place, row in zip(stacked, series, strict=True)
    ]
    named = {f"text_{kind}": words[word] for kind, (_, word) in STACK.items()}
    named["text_external"] = words["kind_external"]
    rule = alt.Chart(data(rows)).mark_rule(opacity=0, strokeWidth=8)
    return rule.encode(x=x, y=y, y2=alt.Y2("high:Q"), tooltip=tooltip(when=words["time"], **named))
