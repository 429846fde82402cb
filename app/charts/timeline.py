"""What each request was doing when: both arms of a comparison on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    arm_colour,
    boxes,
    data,
    exact,
    finish,
    label,
    legend,
    number,
    px,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

MOST_ROWS = 48
HEAD = 40  # two lines of text above an arm's rows
GAP = 14
KINDS = ("queue", "prefill", "decode", "held")
LINE = "M-1,0L1,0"
DOTS = "M-1,-.15h.4v.3h-.4zM-.2,-.15h.4v.3h-.4zM.6,-.15h.4v.3h-.4z"
PAIR = "M-.8,-.8h.5v1.6h-.5zM.3,-.8h.5v1.6h-.5z"


def timeline_chart(arms: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """The requests of each arm as rows of queue, prefill, decode and held slot; the first arm is the baseline.

    An arm: name, segments as from `request_segments`, last_token_s or None. More than 48 requests: the first 48, which
    is said. Words: queue, prefill, decode, held, last_token, request, phase, from_s, to_s, duration, by_arrival with
    {n}, first_n with {n} and {total}.
    """
    t = TOKENS[mode]
    counts = [1 + max((segment["row"] for segment in arm["segments"]), default=-1) for arm in arms]
    step = _row_step(min(MOST_ROWS, max([1, *counts])))
    tops, height = [], 0.0
    for count in counts:
        tops.append(height + HEAD)
        height += HEAD + step * max(1, min(count, MOST_ROWS)) + GAP
    rows = [
        _placed(segment, arm["name"], index, tops[index], step, mode, words)
        for index, arm in enumerate(arms)
        for segment in arm["segments"]
        if segment["row"] < MOST_ROWS
    ]
    ends = [row["end"] for row in rows] + [arm["last_token_s"] for arm in arms if arm["last_token_s"] is not None]
    shown = ticks(0, max(ends, default=1.0), 6)
    x = alt.X("start:Q", axis=tick_axis(shown, "s"), scale=x_scale(0, shown[-1]))
    last = [_last_token(arm, tops[i], step * min(counts[i], MOST_ROWS), shown[-1], words) for i, arm in enumerate(arms)]
    layers = [
        legend(_swatches(mode, words), height),
        *_bars(rows, step, height, x, words),
        *_last_marks([row for row in last if row], t, height, x),
        *_heads(arms, counts, tops, mode, height, words),
    ]
    return finish(layers, mode, height)


def _row_step(count: int) -> float:
    """Pixels a row: 4.6 for 48 requests, more for fewer."""
    return round(max(4.6, min(11.0, 220 / count)), 1)


def _placed(
    segment: Mapping[str, Any],
    name: str,
    arm: int,
    top: float,
    step: float,
    mode: str,
    words: Mapping[str, str],
) -> dict[str, Any]:
    kind = segment["kind"]
    middle = top + step * (segment["row"] + 0.5)
    half = {"prefill": 0.42, "decode": 0.38}.get(kind, 0.0) * step
    part = {"prefill": "strong", "decode": ""}.get(kind, "queue")
    return {
        "arm": name,
        "request": segment["request"],
        "kind": kind,
        "phase": words[kind],
        "start": segment["start_s"],
        "end": segment["end_s"],
        "from": exact(round(segment["start_s"], 4), "s"),
        "to": exact(round(segment["end_s"], 4), "s"),
        "took": exact(round(segment["end_s"] - segment["start_s"], 4), "s"),
        "y": middle,
        "top": middle - half,
        "bottom": middle + half,
        "fill": arm_colour(mode, bool(arm), part),
    }


def _bars(
    rows: list[dict[str, Any]], step: float, height: float, x: alt.X, words: Mapping[str, str]
) -> list[alt.Chart]:
    tips = tooltip(arm=words["arm"], request=words["request"], phase=words["phase"])
    tips += [alt.Tooltip("from:N", title=words["from_s"]), alt.Tooltip("to:N", title=words["to_s"])]
    tips += [alt.Tooltip("took:N", title=words["duration"])]
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    colour, y = alt.Color("fill:N", scale=None), px("y", height)

    def lines(kind: str, **mark: Any) -> alt.Chart:
        return (
            alt.Chart(data(of[kind])).mark_rule(**mark).encode(x=x, x2=alt.X2("end:Q"), y=y, color=colour, tooltip=tips)
        )

    # A prefill is often shorter than a pixel: the tick keeps it visible.
    least = alt.Chart(data(of["prefill"])).mark_tick(thickness=2, height=0.84 * step, opacity=1, orient="vertical")
    return [
        lines("queue", strokeWidth=1),
        lines("held", strokeWidth=1.2, strokeDash=[1, 2.4]),
        boxes(of["decode"], height, x).encode(tooltip=tips),
        boxes(of["prefill"], height, x).encode(tooltip=tips),
        least.encode(x=x, y=y, color=colour, tooltip=tips),
    ]


def _last_token(
    arm: Mapping[str, Any], top: float, rows_px: float, furthest: float, words: Mapping[str, str]
) -> dict[str, Any] | None:
    at = arm["last_token_s"]
    if at is None:
        return None
    return {
        "start": at,
        "top": top - 10,
        "bottom": top + rows_px,
        "y": top - 14,
        "text": f"{words['last_token']} {number(at, 3, 's')}",
        "late": at > furthest / 2,
    }


def _last_marks(rows: list[dict[str, Any]], t: Mapping[str, str], height: float, x: alt.X) -> list[alt.Chart]:
    rule = alt.Chart(data(rows)).mark_rule(strokeDash=[3, 2], strokeWidth=1.2, color=t["text"])
    sides = [(True, "right", -5), (False, "left", 5)]
    return [
        rule.encode(x=x, y=px("top", height), y2=alt.Y2("bottom:Q")),
        *(
            label(
                [row for row in rows if row["late"] is late],
                height,
                x,
                colour=t["text"],
                align=align,
                dx=dx,
                fontWeight=600,
                fontSize=12,
            )
            for late, align, dx in sides
        ),
    ]


def _heads(
    arms: Sequence[Mapping[str, Any]],
    counts: list[int],
    tops: list[float],
    mode: str,
    height: float,
    words: Mapping[str, str],
) -> list[alt.Chart]:
    """Above each arm its name and how many requests it shows."""
    names: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for index, (arm, count, top) in enumerate(zip(arms, counts, tops, strict=True)):
        key = "first_n" if count > MOST_ROWS else "by_arrival"
        y = top - HEAD + 8
        names.append({"text": arm["name"], "y": y, "colour": arm_colour(mode, bool(index), "text")})
        notes.append({"text": words[key].format(n=min(count, MOST_ROWS), total=count), "y": y})
    narrow = alt.ExprRef(f"width - {max((text_px(note['text']) for note in notes), default=0) + 10:.0f}")
    muted = TOKENS[mode]["muted"]
    return [
        label(names, height, alt.value(0), align="left", fontWeight=600, limit=narrow),
        label(notes, height, alt.value(alt.ExprRef("width")), colour=muted, align="right", fontSize=12),
    ]


def _swatches(mode: str, words: Mapping[str, str]) -> list[Swatch]:
    t = TOKENS[mode]
    return [
        Swatch(words["queue"], "transparent", t["queue_base"], LINE),
        Swatch(words["prefill"], t["base_strong"], t["base_strong"], PAIR),
        Swatch(words["decode"], t["base"], t["base"], "square"),
        Swatch(words["held"], t["queue_base"], "transparent", DOTS),
    ]
