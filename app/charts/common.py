"""What all charts share: a y scale in pixels, number formats, text widths, ticks, legends and the finishing touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from altair.utils.schemapi import disable_debug_mode

from app.theme import TOKENS, chart_config

# Checking every part against the schema as it is made takes most of a chart's time; tests check whole charts instead.
disable_debug_mode()

Rows = Sequence[Mapping[str, Any]]
NOTHING = "–"
PREFIX_UNITS = "$€£¥"


class _Rows(alt.InlineData):
    """Rows that are never changed and written as they are. Of others Altair copies every value at each step of building
    a chart, and hashes all of them to write equal ones once."""

    def to_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"values": list(self.values)}

    def __deepcopy__(self, _memo: Any) -> _Rows:
        return self


class _Layers(alt.LayerChart):
    """Layers that share no selection, no data and no size. Altair looks for what is shared in four copies of all
    layers, once when a chart is made and once when it is written."""

    def __init__(self, data: Any = alt.Undefined, layer: Sequence[Any] = (), **more: Any) -> None:
        super(alt.LayerChart, self).__init__(data=data, layer=list(layer), **more)


def data(rows: Iterable[Mapping[str, Any]]) -> alt.Data:
    """Inline rows; unlike a data frame they keep None and are written where they are used."""
    # With a name, which is not written, Altair leaves them where they are.
    return _Rows(values=tuple(dict(row) for row in rows), name="rows")


def px(field: str, height: float) -> alt.Y:
    """A y channel that reads `field` as pixels from the top of a chart `height` pixels high."""
    return alt.Y(
        f"{field}:Q", axis=None, scale=alt.Scale(domain=[0, height], range=[0, height], zero=False, nice=False)
    )


def x_scale(low: float, high: float, *, left: float = 0, right: float = 0) -> alt.Scale:
    """A linear x scale over [low, high] that leaves `left` and `right` pixels of the width free."""
    end = alt.ExprRef(f"width - {right}") if right else alt.ExprRef("width")
    return alt.Scale(domain=[low, high], range=[left, end], nice=False, zero=False)


def finish(layers: Sequence[alt.Chart], mode: str, height: float) -> alt.LayerChart:
    """The layers as one configured chart, as wide as its container, `height` pixels between the axes.

    The width includes axes, legend and padding; the height does not, so that a y scale in pixels stays true.
    """
    autosize = alt.AutoSizeParams(type="fit-x", contains="padding")
    # All at once: Altair copies the whole chart at every further call.
    config = alt.Config(**chart_config(mode))
    kind = _Layers if all(layer.params is alt.Undefined for layer in layers) else alt.LayerChart
    return kind(layer=list(layers), height=height, autosize=autosize, config=config)


@dataclass(frozen=True)
class Stack:
    """Charts whose y is in pixels, one below another in one view with x scales of their own: making a view takes a
    browser longer than what is drawn in it."""

    charts: tuple[alt.LayerChart, ...]
    gap: float = 8

    def to_dict(self, validate: bool = True) -> dict[str, Any]:
        """As Altair's charts have it."""
        specs = [chart.to_dict(validate=validate) for chart in self.charts]
        groups, top = [], 0.0
        for spec in specs:
            groups.append({"layer": [_lowered(layer, top) for layer in spec["layer"]]})
            top += spec["height"] + self.gap
        apart = {"scale": {"x": "independent", "y": "independent"}}
        return {**specs[0], "layer": groups, "resolve": apart, "height": top - self.gap}


def _lowered(layer: dict[str, Any], by: float) -> dict[str, Any]:
    """A layer of `px` rows so many pixels further down."""
    y = layer["encoding"]["y"]
    scale = {**y["scale"], "range": [end + by for end in y["scale"]["range"]]}
    return {**layer, "encoding": {**layer["encoding"], "y": {**y, "scale": scale}}}


def arm_colour(mode: str, is_candidate: bool, kind: str = "") -> str:
    """The colour of an arm: `kind` is "" for bars, "strong" for intervals and prefill, "queue", or "text"."""
    t = TOKENS[mode]
    arm = "cand" if is_candidate else "base"
    return {
        "": t[arm],
        "strong": t[f"{arm}_strong"],
        "queue": t[f"queue_{arm}"],
        "text": t["cand"] if is_candidate else t["muted"],
    }[kind]


def number(value: float | None, digits: int = 3, unit: str = "") -> str:
    """`value` to `digits` significant digits (never fewer than its integer part has), with its unit; "–" for None."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.996 is 10.0
    decimals = max(0, digits - 1 - size) if value else 0
    return _with_unit(f"{value:,.{min(decimals, 12)}f}", unit)


def exact(value: float | None, unit: str = "") -> str:
    """`value` as precisely as a tooltip shows it."""
    return NOTHING if value is None else _with_unit(f"{value:,.9g}", unit)


def percent(value: float | None, decimals: int | None = None) -> str:
    """A change with its sign: +107 %, −0.3 %. Without `decimals`: none from 10 up, else one."""
    if value is None:
        return NOTHING
    places = (0 if abs(value) >= 9.95 else 1) if decimals is None else decimals
    if not round(value, places):
        return "0 %"
    return minus(f"{value:+,.{places}f} %")


def interval(ends: Sequence[float] | None, unit: str = "") -> str:
    """[96.2, 117.1] and its unit, as precisely as a tooltip shows it."""
    if ends is None:
        return NOTHING
    return _with_unit(f"[{exact(ends[0])}, {exact(ends[1])}]", unit)


def minus(text: str) -> str:
    """Hyphens as true minus signs."""
    return text.replace("-", "−")


def _with_unit(text: str, unit: str) -> str:
    text = minus(text)
    if not unit:
        return text
    return f"{unit}{text}" if unit[0] in PREFIX_UNITS else f"{text} {unit}"


def text_px(text: str, size: float = 12.5) -> float:
    """About how wide `text` is drawn; on the safe side."""
    return sum(size if ord(char) > 0x2E7F else 0.56 * size for char in text)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` + 1 round numbers that enclose [low, high]."""
    high = high if high > low else low + 1
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (power * factor) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def tick_axis(values: list[float], unit: str = "", *, signed: bool = False) -> alt.Axis:
    """An axis with ticks at `values`, the unit, if any, at the last one."""
    form = "+,~g" if signed else ",~g"
    text = f"(datum.value == 0 ? '0' : format(datum.value, '{form}'))"
    label = f"{text} + (datum.value == {values[-1]!r} ? ' {unit}' : '')" if unit else text
    # Without the count Vega thins the values out to the count of the configuration.
    return alt.Axis(values=values, tickCount=len(values), labelExpr=label, title=None, grid=True)


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Tooltip lines of texts that are ready to show: field -> its title."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


@dataclass(frozen=True)
class Swatch:
    """One legend entry; `shape` is a Vega symbol or an SVG path within -1..1."""

    label: str
    fill: str
    stroke: str
    shape: str = "square"


def legend(swatches: Sequence[Swatch], height: float, *, pixels: bool = True) -> alt.Chart:
    """A layer that draws nothing but a legend, in two columns or one where a row does not fit.

    pixels: whether the chart's y is in pixels, as `px` has it; layers share one y scale.
    """
    labels = [swatch.label for swatch in swatches]
    each_px = [34 + text_px(label, 13) for label in labels]
    two_px = sum(max(column) for column in (each_px[::2], each_px[1::2]) if column)
    columns = alt.ExprRef(f"width < {two_px:.0f} ? 1 : width < {sum(each_px):.0f} ? 2 : {len(labels)}")
    shown = alt.Legend(title=None, columns=columns, symbolOpacity=1, symbolStrokeWidth=1, labelLimit=170)

    def scale(values: list[str]) -> alt.Scale:
        return alt.Scale(domain=labels, range=values)

    return (
        alt.Chart(data([{"entry": label, "y": 0} for label in labels[:1]]))
        .mark_point(opacity=0)
        .encode(
            y=px("y", height) if pixels else alt.YValue(0),
            x=alt.XValue(0),
            fill=alt.Fill("entry:N", scale=scale([s.fill for s in swatches]), legend=shown),
            stroke=alt.Stroke("entry:N", scale=scale([s.stroke for s in swatches]), legend=shown),
            shape=alt.Shape("entry:N", scale=scale([s.shape for s in swatches]), legend=shown),
        )
    )


def label(
    text_rows: Iterable[Mapping[str, Any]], height: float, x: Any, *, colour: str | None = None, **mark: Any
) -> alt.Chart:
    """Text at pixel row `y`: each row has `text` and `y`, and `colour` unless one is given for all."""
    options: dict[str, Any] = {"baseline": "middle", "tooltip": None, **mark}
    encodings: dict[str, Any] = {
        "y": px("y", height),
        "x": alt.XValue(x["value"]) if isinstance(x, dict) else x,
        "text": alt.Text("text:N"),
    }
    encodings["color"] = alt.ColorValue(colour) if colour else alt.Color("colour:N", scale=None)
    return alt.Chart(data(text_rows)).mark_text(**options).encode(**encodings)


def boxes(rows: Rows, height: float, x: alt.X, **mark: Any) -> alt.Chart:
    """Filled rectangles: each row has `start`, `end` on the x scale, `top`, `bottom` in pixels and `fill`.

    The colour channel, not fill: a layer with a fill channel of its own would split the legend of fills.
    """
    return _rectangles(rows, height, x, "fill", **mark)


def outlines(rows: Rows, height: float, x: alt.X, **mark: Any) -> alt.Chart:
    """The outlines, 1 px wide and in the colour `stroke`, of rows as `boxes` takes them."""
    return _rectangles(rows, height, x, "stroke", filled=False, strokeWidth=1, **mark)


def _rectangles(rows: Rows, height: float, x: alt.X, colour: str, **mark: Any) -> alt.Chart:
    return (
        alt.Chart(data(rows))
        .mark_rect(**mark)
        .encode(
            x=x,
            x2=alt.X2("end:Q"),
            y=px("top", height),
            y2=alt.Y2("bottom:Q"),
            color=alt.Color(f"{colour}:N", scale=None),
        )
    )
