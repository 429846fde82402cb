"""What moves while a comparison runs: progress by repeat, the rate over time, sparklines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    arm_colour,
    boxes,
    data,
    exact,
    finish,
    label,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

PROGRESS_HEIGHT = 34
RATE_HEIGHT = 170
SPARK_HEIGHT = 36
QUALITY_UNITS = 1  # work after the runs, in runs, that the fraction of a comparison counts


def progress_chart(
    live: Mapping[str, Any], arms: tuple[str, str], mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """A pair of segments a repeat, baseline and candidate, each filled as far as it has come.

    Words: repeat with {n}, this_repeat, arm, value, rate_unit, progress.
    """
    t = TOKENS[mode]
    repeats = max(1, live["repeats"])
    parts = [_part(live, repeat, arm, arms, mode, words) for repeat in range(1, repeats + 1) for arm in (0, 1)]
    x = alt.X("start:Q", axis=None, scale=x_scale(0, repeats - 0.06))
    tips = tooltip(repeat=words["this_repeat"], arm=words["arm"], share=words["progress"], shown=words["value"])
    filled = [{**part, "end": part["start"] + part["done"] * part["length"]} for part in parts if part["done"] > 0]
    layers = [
        boxes(parts, PROGRESS_HEIGHT, x, cornerRadius=2, stroke=t["base"], strokeWidth=1).encode(
            color=alt.ColorValue(t["bg2"]), tooltip=tips
        ),
        boxes(filled, PROGRESS_HEIGHT, x, cornerRadius=2).encode(tooltip=tips),
        *_repeat_labels(live["repeat"], repeats, x, t, words),
    ]
    return finish(layers, mode, PROGRESS_HEIGHT)


def _part(
    live: Mapping[str, Any], repeat: int, arm: int, arms: tuple[str, str], mode: str, words: Mapping[str, str]
) -> dict[str, Any]:
    value = _value(live, repeat, arm)
    done = _share_done(live, repeat, arm)
    length = 0.455
    start = repeat - 1 + 0.485 * arm
    return {
        "repeat": words["repeat"].format(n=repeat),
        "arm": arms[arm],
        "start": start,
        "end": start + length,
        "length": length,
        "done": done,
        "share": f"{100 * done:.0f} %",
        "shown": exact(value, words["rate_unit"]),
        "top": 2,
        "bottom": 10,
        "fill": arm_colour(mode, bool(arm)),
    }


def _value(live: Mapping[str, Any], repeat: int, arm: int) -> float | None:
    for row in live["repeats_so_far"]:
        if row["repeat"] == repeat:
            return row["values"][arm]
    return None


def _share_done(live: Mapping[str, Any], repeat: int, arm: int) -> float:
    """How much of one run is done. The one going on is what the fraction of the whole leaves over."""
    if live["phase"] in ("quality", "done") or _value(live, repeat, arm) is not None:
        return 1.0
    if live["phase"] != "running" or (live["repeat"], live["arm"]) != (repeat, arm):
        return 0.0
    finished = sum(value is not None for row in live["repeats_so_far"] for value in row["values"])
    runs = (live["fraction"] or 0.0) * (2 * live["repeats"] + QUALITY_UNITS)
    return max(0.0, min(1.0, runs - finished))


def _repeat_labels(
    current: int, repeats: int, x: alt.X, t: Mapping[str, str], words: Mapping[str, str]
) -> list[alt.Chart]:
    """The number of each repeat under its pair, in words for the first and the current one; none collide."""
    spelled = {repeat: words["repeat"].format(n=repeat) for repeat in (1, current)}
    rows = [
        {"start": repeat - 1, "y": 25, "repeat": repeat, "text": spelled.get(repeat, str(repeat))}
        for repeat in range(1, repeats + 1)
    ]
    need = max(text_px(text) for text in spelled.values()) + 8
    # Numbers right of a spelled-out label give way to it where the page is narrow.
    covered = " || ".join(
        f"(datum.repeat > {at} && (datum.repeat - {at}) * width / {repeats} < {need:.0f})" for at in sorted(spelled)
    )
    first_meets = f"datum.repeat == 1 && {current} > 1 && ({current} - 1) * width / {repeats} < {need:.0f}"
    shown = f"datum.repeat == {current} || !({covered} || ({first_meets}))"
    weights = [(True, 600, t["text"]), (False, 400, t["muted"])]
    return [
        label(
            [row for row in rows if (row["repeat"] == current) is now],
            PROGRESS_HEIGHT,
            x,
            colour=colour,
            align="left",
            fontSize=12,
            fontWeight=weight,
        ).transform_filter(shown)
        for now, weight, colour in weights
    ]


def rate_chart(
    series: Mapping[str, Any],
    previous: Mapping[str, Any] | None,
    names: tuple[str, str],
    is_candidate: bool,
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """Output tokens/s of the current run over the other arm's last one, both from their start; names (current, other).

    Words: now with {name}, finished with {name}, time, rate, rate_unit, arm.
    """
    current = _points(series, names[0], words)
    other = _points(previous, names[1], words) if previous else []
    across = ticks(0, max((row["t"] for row in current + other), default=1.0), 6)
    up = ticks(0, max((row["rate"] for row in current + other), default=1.0), 4)
    x = alt.X("t:Q", axis=tick_axis(across, "s"), scale=x_scale(0, across[-1], right=6))
    y = alt.Y("rate:Q", axis=tick_axis(up), scale=alt.Scale(domain=[0, up[-1]], nice=False))
    tips = tooltip(name=words["arm"], time=words["time"], shown=words["rate"])
    colours = [arm_colour(mode, is_candidate), arm_colour(mode, not is_candidate)]
    layers = [
        alt.Chart(data(rows)).mark_line(strokeWidth=width, color=colour, clip=True).encode(x=x, y=y, tooltip=tips)
        for rows, width, colour in ((other, 1.5, colours[1]), (current, 2.2, colours[0]))
    ]
    layers.append(
        alt.Chart(data(current[-1:]))
        .mark_point(filled=True, size=50, opacity=1, color=colours[0])
        .encode(x=x, y=y, tooltip=tips)
    )
    layers += _rate_labels(current, other, names, is_candidate, (across[-1], up[-1]), (x, y), mode, words)
    return finish(layers, mode, RATE_HEIGHT)


def _points(series: Mapping[str, Any], name: str, words: Mapping[str, str]) -> list[dict[str, Any]]:
    pairs = zip(series["t_s"], series["output_tokens_per_s"], strict=True)
    return [
        {"t": at, "rate": rate, "name": name, "time": exact(at, "s"), "shown": exact(rate, words["rate_unit"])}
        for at, rate in pairs
        if at is not None and rate is not None
    ]


def _rate_labels(
    current: list[dict[str, Any]],
    other: list[dict[str, Any]],
    names: tuple[str, str],
    is_candidate: bool,
    ends: tuple[float, float],
    channels: tuple[alt.X, alt.Y],
    mode: str,
    words: Mapping[str, str],
) -> list[alt.Chart]:
    """The arm's name at the end of its line; the other one's goes below its end where the two would meet."""
    layers = []
    meet = bool(current and other) and abs(current[-1]["t"] - other[-1]["t"]) < 0.4 * ends[0]
    near = meet and abs(current[-1]["rate"] - other[-1]["rate"]) < 0.25 * ends[1]
    below = near and current[-1]["rate"] >= other[-1]["rate"]
    for rows, key, arm, name, dy in (
        (other, "finished", not is_candidate, names[1], 14 if below else -11),
        (current, "now", is_candidate, names[0], 14 if near and not below else -11),
    ):
        if rows:
            point = rows[-1]
            late = point["t"] > 0.5 * ends[0]
            text = {**point, "text": words[key].format(name=name)}
            place: dict[str, Any] = {"align": "right" if late else "left", "dx": 0 if late else 7, "dy": dy}
            chart = alt.Chart(data([text])).encode(x=channels[0], y=channels[1], text=alt.Text("text:N"))
            colours: dict[str, Any] = {"color": arm_colour(mode, arm, "text"), "fontWeight": 600, "fontSize": 12}
            halo: dict[str, Any] = {"stroke": TOKENS[mode]["card"], "strokeWidth": 4, "strokeJoin": "round"}
            layers += [chart.mark_text(**place, **colours, **halo), chart.mark_text(**place, **colours)]
    return layers


def spark(values: Sequence[float | None], mode: str) -> alt.LayerChart:
    """A small area line of `values` in their order, with a dot at the last one; no axes, no words."""
    t = TOKENS[mode]
    known = [value for value in values if value is not None]
    rows = [{"x": index, "y": value, "shown": exact(value)} for index, value in enumerate(values) if value is not None]
    low, top = min([0.0, *known]), max([0.0, *known]) or 1.0
    x = alt.X("x:Q", axis=None, scale=x_scale(0, max(1, len(values) - 1), left=2, right=5))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[low, top * 1.15], nice=False))
    tips = [alt.Tooltip("shown:N", title="")]
    line = alt.Chart(data(rows)).encode(x=x, y=y, tooltip=tips)
    layers = [
        line.mark_area(color=t["cand_soft"], opacity=1, line={"color": t["cand"], "strokeWidth": 1.6}),
        alt.Chart(data(rows[-1:])).mark_point(filled=True, size=34, opacity=1, color=t["cand"]).encode(x=x, y=y),
    ]
    return finish(layers, mode, SPARK_HEIGHT)
