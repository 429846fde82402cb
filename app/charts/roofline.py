"""The roofline: operators of a step under the roofs, their share of its time, and how intensity grows with batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    boxes,
    data,
    exact,
    finish,
    label,
    legend,
    number,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

TERA = 1e12
ROOF_HEIGHT = 320.0
LINES_HEIGHT = 250.0
BAR_ROW = 26
NAME_ROOM = 132
SELECTION = "operator"
SHAPES = {"linear": "circle", "attention": "diamond", "other": "square"}
PHASE_PAINT = {"prefill": "cand_strong", "decode": "cand"}
# Points nearer than this on the logarithmic x axis, in decades, share one name.
SAME_PLACE = 0.18


def roofline_chart(
    points: Sequence[Mapping[str, Any]],
    roofs: Sequence[Mapping[str, Any]],
    chosen: str | None,
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """FLOP/s over FLOP/B, both logarithmic: a roof a number format, a mark an operator, which can be clicked.

    A point: key, name, phase, kind (of SHAPES), intensity, attained_flops_per_s, share (of its step's time), bound.
    A roof: name, flops_per_s, bandwidth_bytes_per_s, ridge. Words: prefill, decode, kind_linear, kind_attention,
    kind_other, ridge with {value}, operator, phase, intensity, attained, time_share, bound.
    """
    t = TOKENS[mode]
    shown = [point for point in points if point["intensity"] and point["attained_flops_per_s"]]
    low, high, floor, top = _extent(shown, roofs)
    x = _log_axis("x:Q", (low, high), _powers(low, high), _power_label("FLOP/B", high))
    y = _log_axis("y:Q", (floor, top), _powers(floor, top), _power_label("TFLOP/s", top))
    layers = [
        legend(_shape_legend(shown, t, words), ROOF_HEIGHT, pixels=False),
        *_roofs(roofs, low, high, floor, t, x, y, words),
        _points(shown, chosen, t, x, y, words),
        _point_names(shown, t, x, y),
    ]
    return finish(layers, mode, ROOF_HEIGHT)


def _log_axis(field: str, ends: tuple[float, float], values: Sequence[float], label: str, base: int = 10) -> Any:
    """An x or y channel on a logarithmic scale over `ends`, with grid lines at `values`."""
    scale = alt.Scale(type="log", base=base, domain=list(ends), nice=False)
    axis = alt.Axis(values=list(values), tickCount=len(values), grid=True, labelExpr=label)
    channel = alt.X if field.startswith("x") else alt.Y
    return channel(field, title=None, scale=scale, axis=axis)


def _extent(points: Sequence[Mapping[str, Any]], roofs: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """The ends of both axes, whole powers of ten in x, around everything that is drawn."""
    ridges = [roof["ridge"] for roof in roofs]
    across = [*(point["intensity"] for point in points), *ridges]
    up = [*(point["attained_flops_per_s"] / TERA for point in points), *(roof["flops_per_s"] / TERA for roof in roofs)]
    low = 10.0 ** math.floor(math.log10(min(across)) - 0.05)
    high = 10.0 ** math.ceil(math.log10(max(across)) + 0.05)
    return low, high, min(up) / 2, max(up) * 2.2


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def _power_label(unit: str, high: float) -> str:
    """The value, and the unit at the last tick."""
    last = _powers(high / 10, high)[-1]
    return f"format(datum.value, ',~g') + (abs(datum.value / {last!r} - 1) < 0.01 ? ' {unit}' : '')"


def _shape_legend(points: Sequence[Mapping[str, Any]], t: Mapping[str, str], words: Mapping[str, str]) -> list[Swatch]:
    kinds = {point["kind"] for point in points}
    phases = [phase for phase in PHASE_PAINT if any(point["phase"] == phase for point in points)]
    found = [Swatch(words[phase], t[PHASE_PAINT[phase]], t[PHASE_PAINT[phase]]) for phase in phases]
    shapes = [Swatch(words[f"kind_{kind}"], t["muted"], t["muted"], SHAPES[kind]) for kind in SHAPES if kind in kinds]
    return [*found, *shapes]


def _roofs(
    roofs: Sequence[Mapping[str, Any]],
    low: float,
    high: float,
    floor: float,
    t: Mapping[str, str],
    x: alt.X,
    y: alt.Y,
    words: Mapping[str, str],
) -> list[alt.Chart]:
    layers = []
    for place, roof in enumerate(roofs):
        slope = roof["bandwidth_bytes_per_s"] / TERA
        peak = roof["flops_per_s"] / TERA
        start = max(low, floor / slope)
        line = [{"x": start, "y": start * slope}, {"x": roof["ridge"], "y": peak}, {"x": high, "y": peak}]
        layers.append(
            alt.Chart(data(line if place == 0 else line[1:]))
            .mark_line(color=t["base"], strokeWidth=2, strokeDash=[1, 0] if place == 0 else [6, 3], tooltip=None)
            .encode(x=x, y=y)
        )
        name = [{"x": high, "y": peak, "text": roof["name"]}]
        layers.append(_text(name, x, y, t["muted"], align="right", dy=-9, fontSize=12))
        ridge = [
            {"x": roof["ridge"], "y": floor, "y2": peak, "text": words["ridge"].format(value=number(roof["ridge"]))}
        ]
        rule = alt.Chart(data(ridge)).mark_rule(color=t["muted"], strokeDash=[2, 3], tooltip=None)
        layers.append(rule.encode(x=x, y=y, y2="y2:Q"))
        align = "right" if math.log10(roof["ridge"] / low) > 0.5 * math.log10(high / low) else "left"
        dx = -6 if align == "right" else 6
        layers.append(_text(ridge, x, y, t["muted"], align=align, dx=dx, dy=-9 - 15 * place, fontSize=12))
    return layers


def _text(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, colour: str, **mark: Any) -> alt.Chart:
    chart = alt.Chart(data(rows)).mark_text(baseline="middle", tooltip=None, **mark)
    return chart.encode(x=x, y=y, text="text:N", color=alt.value(colour))


def _points(
    points: Sequence[Mapping[str, Any]],
    chosen: str | None,
    t: Mapping[str, str],
    x: alt.X,
    y: alt.Y,
    words: Mapping[str, str],
) -> alt.Chart:
    rows = [
        {
            "key": point["key"],
            "x": point["intensity"],
            "y": point["attained_flops_per_s"] / TERA,
            "size": 50 + 500 * point["share"],
            "shape": SHAPES[point["kind"]],
            "fill": t[PHASE_PAINT[point["phase"]]],
            "stroke": t["text"] if point["key"] == chosen else t["card"],
            "width": 2.2 if point["key"] == chosen else 1.0,
            "name": point["name"],
            "phase": words[point["phase"]],
            "intensity": exact(round(point["intensity"], 3), "FLOP/B"),
            "attained": exact(round(point["attained_flops_per_s"] / TERA, 4), "TFLOP/s"),
            "time_share": f"{100 * point['share']:.1f} %",
            "bound": point["bound"],
        }
        for point in sorted(points, key=lambda one: (one["key"] == chosen, -one["share"]))
    ]
    names = ("phase", "intensity", "attained", "time_share", "bound")
    tips = tooltip(name=words["operator"], **{name: words[name] for name in names})
    pick = alt.selection_point(name=SELECTION, fields=["key"], on="click", empty=False)
    return (
        alt.Chart(data(rows))
        .mark_point(filled=True, opacity=0.92, cursor="pointer")
        .encode(
            x=x, y=y,
            size=alt.Size("size:Q", scale=None),
            shape=alt.Shape("shape:N", scale=None),
            fill=alt.Fill("fill:N", scale=None),
            stroke=alt.Stroke("stroke:N", scale=None),
            strokeWidth=alt.StrokeWidth("width:Q", scale=None),
            tooltip=tips,
        )
        .add_params(pick)
    )  # fmt: skip


def _point_names(points: Sequence[Mapping[str, Any]], t: Mapping[str, str], x: alt.X, y: alt.Y) -> alt.Chart:
    """A name for each group of marks that lie together: that of the one which takes most time, and how many more."""
    groups: list[list[Mapping[str, Any]]] = []
    for point in sorted(points, key=lambda one: one["intensity"]):
        at = math.log10(point["intensity"])
        if groups and at - math.log10(groups[-1][0]["intensity"]) < SAME_PLACE:
            groups[-1].append(point)
        else:
            groups.append([point])
    rows = []
    for group in groups:
        first = max(group, key=lambda one: one["share"])
        more = f" +{len(group) - 1}" if len(group) > 1 else ""
        row = {"x": first["intensity"], "y": first["attained_flops_per_s"] / TERA, "text": f"{first['name']}{more}"}
        rows.append(row)
    return _text(rows, x, y, t["text"], align="left", dx=10, dy=12, fontSize=12)


def time_share_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """A bar an operator, the longest first: its time in one step, and its share of it.

    A row: name, phase, time_s, share, bound. Words: operator, phase, duration, time_share, bound, prefill, decode.
    """
    t = TOKENS[mode]
    ordered = sorted(rows, key=lambda row: -row["time_s"])
    height = float(BAR_ROW * max(1, len(ordered)) + 4)
    scale, unit = time_unit(max([row["time_s"] for row in ordered], default=0.0))
    longest = max([1e-12, *(row["time_s"] * scale for row in ordered)])
    across = ticks(0, longest, 4)
    right = 108
    x = alt.X("start:Q", axis=tick_axis([tick for tick in across if tick <= longest * 1.0001], unit),
              scale=x_scale(0, longest, left=NAME_ROOM, right=right))  # fmt: skip
    bars = []
    for index, row in enumerate(ordered):
        top = BAR_ROW * index + 5
        bars.append(
            {
                "start": 0,
                "end": row["time_s"] * scale,
                "top": top,
                "bottom": top + 16,
                "y": top + 8,
                "fill": t[PHASE_PAINT[row["phase"]]],
                "name": row["name"],
                "phase": words[row["phase"]],
                "took": exact(round(row["time_s"] * scale, 5), unit),
                "time_share": f"{100 * row['share']:.1f} %",
                "bound": row["bound"],
                "text": f"{number(row['time_s'] * scale)} {unit} · {100 * row['share']:.0f} %",
            }
        )
    tips = tooltip(name=words["operator"], phase=words["phase"], took=words["duration"],
                   time_share=words["time_share"], bound=words["bound"])  # fmt: skip
    names = [{"text": bar["name"], "y": bar["y"]} for bar in bars]
    ends = [{**bar, "start": bar["end"]} for bar in bars]
    layers = [
        boxes(bars, height, x, cornerRadiusEnd=2).encode(tooltip=tips),
        label(names, height, alt.value(0), colour=t["text"], align="left", fontSize=12, limit=NAME_ROOM - 6),
        label(ends, height, x, colour=t["muted"], align="left", dx=6, fontSize=12),
    ]
    return finish(layers, mode, height)


def time_unit(seconds: float) -> tuple[float, str]:
    """What seconds are multiplied with, and the unit, so that `seconds` reads as a number of at least 1."""
    return (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")


def crossover_chart(
    lines: Sequence[Mapping[str, Any]], ridge: float, crossover: int | None, mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """Intensity of a decode step over the batch, both logarithmic, against the ridge.

    A line: kind (linear or attention) and points [{batch, intensity}]. crossover: the batch at which the linear layers
    reach the ridge, None when they do not. Words: kind_linear, kind_attention, ridge with {value}, crossover_at with
    {batch}, batch, intensity.
    """
    t = TOKENS[mode]
    found = [point for line in lines for point in line["points"] if point["intensity"]]
    batches = sorted({point["batch"] for point in found})
    low = min(ridge, *(point["intensity"] for point in found)) / 1.6
    high = max(ridge, *(point["intensity"] for point in found)) * 1.9
    x = _log_axis("x:Q", (batches[0], batches[-1]), batches, _batch_label(batches, words), base=2)
    y = _log_axis("y:Q", (low, high), _powers(low, high), _power_label("FLOP/B", high))
    paints = {"linear": t["cand"], "attention": t["activations"]}
    swatches = [Swatch(words[f"kind_{line['kind']}"], paints[line["kind"]], paints[line["kind"]]) for line in lines]
    layers = [legend(swatches, LINES_HEIGHT, pixels=False)]
    for line in lines:
        rows = [
            {
                "x": point["batch"],
                "y": point["intensity"],
                "batch": f"{point['batch']:,}",
                "intensity": exact(round(point["intensity"], 3), "FLOP/B"),
                "name": words[f"kind_{line['kind']}"],
            }
            for point in line["points"]
            if point["intensity"]
        ]
        tips = tooltip(name=words["operator"], batch=words["batch"], intensity=words["intensity"])
        chart = alt.Chart(data(rows))
        layers.append(chart.mark_line(color=paints[line["kind"]], strokeWidth=2.2, tooltip=None).encode(x=x, y=y))
        layers.append(
            chart.mark_point(filled=True, size=36, color=paints[line["kind"]], opacity=1).encode(x=x, y=y, tooltip=tips)
        )
    at = [{"x": batches[0], "y": ridge, "text": words["ridge"].format(value=number(ridge))}]
    rule = alt.Chart(data(at)).mark_rule(color=t["muted"], strokeDash=[4, 3], strokeWidth=1.4, tooltip=None)
    layers += [rule.encode(y=y), _text(at, x, y, t["muted"], align="left", dx=4, dy=-9, fontSize=12)]
    if crossover is not None and batches[0] <= crossover <= batches[-1]:
        mark = [{"x": crossover, "y": low, "y2": ridge, "text": words["crossover_at"].format(batch=f"{crossover:,}")}]
        drop = alt.Chart(data(mark)).mark_rule(color=t["text"], strokeWidth=1.4, tooltip=None)
        left = math.log2(crossover / batches[0]) > 0.55 * math.log2(batches[-1] / batches[0])
        layers += [
            drop.encode(x=x, y=y, y2="y2:Q"),
            _text(mark, x, y, t["text"], align="right" if left else "left", dx=-6 if left else 6, dy=-10,
                  fontSize=12.5, fontWeight=600),
        ]  # fmt: skip
    return finish(layers, mode, LINES_HEIGHT)


def _batch_label(batches: Sequence[int], words: Mapping[str, str]) -> str:
    return f"format(datum.value, ',d') + (datum.value == {batches[-1]} ? ' {words['batch_unit']}' : '')"
