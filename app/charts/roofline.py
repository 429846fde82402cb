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
# kind -> mark and word
KINDS = {
    "linear": ("circle", "kind_linear"),
    "attention": ("diamond", "kind_attention"),
    "other": ("square", "kind_other"),
}
PHASE_PAINT = {"prefill": "base_strong", "decode": "cand"}


def roofline_chart(
    points: Sequence[Mapping[str, Any]],
    roofs: Sequence[Mapping[str, Any]],
    chosen: str | None,
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """FLOP/s over FLOP/B, both logarithmic: a roof a number format, a mark an operator, which can be clicked.

    A point: key, name, phase, kind (of KINDS), intensity, ridge, attained_flops_per_s, share (of the step), bound.
    A roof: name, flops_per_s, bandwidth_bytes_per_s, ridge. Words: prefill, decode, kind_linear, kind_attention,
    kind_other, operator, phase, intensity, attained, time_share, bound.
    """
    t = TOKENS[mode]
    shown = [point for point in points if point["intensity"] and point["attained_flops_per_s"]]
    low, high, floor, top = _extent(shown, roofs)
    x = _log_axis("x:Q", (low, high), _powers(low, high), _power_label("FLOP/B", high))
    y = _log_axis("y:Q", (floor, top), _powers(floor, top), _power_label("TFLOP/s", top))
    layers = [
        *_roofs(roofs, low, high, floor, t, x, y),
        _ring(shown, chosen, t, x, y),
        _points(shown, t, x, y, words),
        *_slope_names(shown, t, x, y, words),
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
    low = 10.0 ** math.floor(math.log10(min(across)) - 0.4)
    high = 10.0 ** math.ceil(math.log10(max(across)) + 0.05)
    return low, high, min(up) / 2, max(up) * 3


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def _power_label(unit: str, high: float) -> str:
    """The value, and the unit at the last tick."""
    last = _powers(high / 10, high)[-1]
    return f"format(datum.value, ',~g') + (abs(datum.value / {last!r} - 1) < 0.01 ? ' {unit}' : '')"


def _roofs(
    roofs: Sequence[Mapping[str, Any]],
    low: float,
    high: float,
    floor: float,
    t: Mapping[str, str],
    x: alt.X,
    y: alt.Y,
) -> list[alt.Chart]:
    """Each roof with its name, ridge included, above its flat end; the slope is the same for all and drawn once."""
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
        layers.append(_text(name, x, y, t["muted"], align="right", dy=-14, fontSize=12))
        ridge = [{"x": roof["ridge"], "y": floor, "y2": peak}]
        rule = alt.Chart(data(ridge)).mark_rule(color=t["muted"], strokeDash=[2, 3], tooltip=None)
        layers.append(rule.encode(x=x, y=y, y2=alt.Y2("y2:Q")))
    return layers


def _text(rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, colour: str, **mark: Any) -> alt.Chart:
    chart = alt.Chart(data(rows)).mark_text(baseline="middle", tooltip=None, **mark)
    return chart.encode(x=x, y=y, text=alt.Text("text:N"), color=alt.ColorValue(colour))


def _size(point: Mapping[str, Any]) -> float:
    """The area of a mark: its share of the step's time, and enough to be clicked when that is little."""
    return 50 + 500 * point["share"]


def _ring(
    points: Sequence[Mapping[str, Any]], chosen: str | None, t: Mapping[str, str], x: alt.X, y: alt.Y
) -> alt.Chart:
    """A ring around the chosen mark."""
    rows = [
        {"x": point["intensity"], "y": point["attained_flops_per_s"] / TERA, "size": 2.2 * _size(point) + 120}
        for point in points
        if point["key"] == chosen
    ]
    mark = alt.Chart(data(rows)).mark_point(
        shape="circle", filled=False, strokeWidth=1.8, color=t["text"], tooltip=None
    )
    return mark.encode(x=x, y=y, size=alt.Size("size:Q", scale=None))


def _points(
    points: Sequence[Mapping[str, Any]], t: Mapping[str, str], x: alt.X, y: alt.Y, words: Mapping[str, str]
) -> alt.Chart:
    rows = [
        {
            "key": point["key"],
            "x": point["intensity"],
            "y": point["attained_flops_per_s"] / TERA,
            "size": _size(point),
            "kind": words[KINDS[point["kind"]][1]],
            "name": point["name"],
            "phase": words[point["phase"]],
            "intensity": exact(round(point["intensity"], 3), "FLOP/B"),
            "attained": exact(round(point["attained_flops_per_s"] / TERA, 4), "TFLOP/s"),
            "time_share": f"{100 * point['share']:.1f} %",
            "bound": point["bound"],
        }
        for point in sorted(points, key=lambda one: -one["share"])
    ]
    names = ("phase", "intensity", "attained", "time_share", "bound")
    tips = tooltip(name=words["operator"], **{name: words[name] for name in names})
    phases = [phase for phase in PHASE_PAINT if any(point["phase"] == phase for point in points)]
    kinds = [kind for kind in KINDS if any(point["kind"] == kind for point in points)]
    paint = alt.Scale(domain=[words[phase] for phase in phases], range=[t[PHASE_PAINT[phase]] for phase in phases])
    form = alt.Scale(domain=[words[KINDS[kind][1]] for kind in kinds], range=[KINDS[kind][0] for kind in kinds])
    columns = alt.ExprRef("width < 320 ? 1 : 4")
    shapes = alt.Legend(title=None, columns=columns, symbolFillColor=t["muted"], symbolStrokeColor=t["muted"])
    pick = alt.selection_point(name=SELECTION, fields=["key"], on="click", empty=False)
    return (
        alt.Chart(data(rows))
        .mark_point(filled=True, opacity=0.92, cursor="pointer", stroke=t["card"], strokeWidth=1)
        .encode(
            x=x, y=y,
            size=alt.Size("size:Q", scale=None),
            color=alt.Color("phase:N", scale=paint, legend=alt.Legend(title=None, columns=columns)),
            shape=alt.Shape("kind:N", scale=form, legend=shapes),
            tooltip=tips,
        )
        .add_params(pick)
    )  # fmt: skip


def _slope_names(
    points: Sequence[Mapping[str, Any]], t: Mapping[str, str], x: alt.X, y: alt.Y, words: Mapping[str, str]
) -> list[alt.Chart]:
    """What kind the longest operator of each kind and phase is, where it lies on the slope: linear layers above it,
    attention below, so that the two never meet. Every mark by its name would not fit, nor would names between roofs.
    """
    layers = []
    for kind, place in (
        ("linear", {"align": "right", "dx": -12, "dy": -9}),
        ("attention", {"align": "left", "dx": 13, "dy": 8}),
    ):
        longest: dict[str, Mapping[str, Any]] = {}
        for point in sorted(points, key=lambda one: one["share"]):
            if point["kind"] == kind:
                longest[point["phase"]] = point
        rows = [
            {"x": one["intensity"], "y": one["attained_flops_per_s"] / TERA, "text": words[KINDS[kind][1]]}
            for one in longest.values()
            if one["intensity"] < 0.8 * one["ridge"]
        ]
        layers.append(_text(rows, x, y, t["text"], fontSize=12, **place))
    return layers


def time_share_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """A bar an operator, the longest first: its time in one step, and its share of it.

    A row: name, phase, time_s, share, bound, and is_rest for the row that sums up others. Words: operator, phase,
    duration, time_share, bound, prefill, decode.
    """
    t = TOKENS[mode]
    ordered = sorted(rows, key=lambda row: (row.get("is_rest", False), -row["time_s"]))
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
                "text": f"{_time_text(row['time_s'])} · {_share_text(row['share'])}",
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


def _time_text(seconds: float) -> str:
    scale, unit = time_unit(seconds)
    return number(seconds * scale, 3, unit)


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 or not share else "< 1 %"


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
    x = _log_axis("x:Q", (batches[0], batches[-1]), batches, "format(datum.value, ',d')", base=2)
    y = _log_axis("y:Q", (low, high), _powers(low, high), _power_label("FLOP/B", high))
    paints = {"linear": t["cand"], "attention": t["activations"]}
    swatches = [Swatch(words[KINDS[line["kind"]][1]], paints[line["kind"]], paints[line["kind"]]) for line in lines]
    layers = [legend(swatches, LINES_HEIGHT, pixels=False)]
    for line in lines:
        rows = [
            {
                "x": point["batch"],
                "y": point["intensity"],
                "batch": f"{point['batch']:,}",
                "intensity": exact(round(point["intensity"], 3), "FLOP/B"),
                "name": words[KINDS[line["kind"]][1]],
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
            drop.encode(x=x, y=y, y2=alt.Y2("y2:Q")),
            _text(mark, x, y, t["text"], align="right" if left else "left", dx=-6 if left else 6, dy=-24,
                  fontSize=12.5, fontWeight=600, lineBreak="\n"),
        ]  # fmt: skip
    return finish(layers, mode, LINES_HEIGHT)
