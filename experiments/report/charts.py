"""Inline SVG of a report's charts, a drawing for each kind of chart.

Positions across are percentages and text keeps its size, so a chart fits any width. Colours are the page's variables.
Draws the rows of a `Chart`; computes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from experiments.report.document import Chart
from experiments.report.html import Markup, join, tag
from experiments.report.words import MISSING, Words, interval, number, percent, signed_percent

ARMS = ("base", "cand")
MIB = 2**20
STRIP_OCTAVES = 4.0
ROW = 4.6
LEDGER = ("weights", "kv_used", "kv_reserved", "kv_free", "activations", "other")
SEGMENTS = (("queue", "line"), ("prefill", "var(--base_strong)"), ("decode", "var(--base)"), ("held", "dots"))
CROSS_WIDTH, CROSS_HEIGHT, CROSS_EDGE = 420, 220, 60
Row = Mapping[str, Any]


def draw(chart: Chart, words: Words) -> Markup:
    """The chart as SVG with its legend, or a dash where there is nothing to draw."""
    if not chart.rows:
        return tag("p", MISSING, class_="muted")
    return DRAWINGS[chart.kind](chart, words)


def ticks(end: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to at most `end`, at most `most` + 1 of them."""
    if end <= 0:
        return [0.0]
    raw = end / most
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * (1 - 1e-9))
    return [step * i for i in range(math.floor(end / step + 1e-9) + 1)]


def ledger_accounts(memory: Mapping[str, Any]) -> dict[str, float | None]:
    """Bytes of the bar's accounts in the order of LEDGER; None where a run could not tell."""
    used, reserved, pool = (memory.get(key) for key in ("kv_peak_used_bytes", "kv_reserved_bytes", "kv_pool_bytes"))
    return {
        "weights": memory.get("weights_bytes"),
        "kv_used": used,
        "kv_reserved": None if used is None or reserved is None else max(0, reserved - used),
        "kv_free": None if reserved is None or pool is None else max(0, pool - reserved),
        "activations": memory.get("activation_peak_bytes"),
        "other": memory.get("other_bytes"),
    }


# -- drawings, one a kind ----------------------------------------------------------------------------------------------


def _arms(chart: Chart, words: Words) -> Markup:
    """One bar an arm from zero, with its value and the 95 % interval of the arm's geometric mean: rows of name, value,
    low, high, text."""
    values = [row["value"] for row in chart.rows if row["value"] is not None]
    tops = values + [row["high"] for row in chart.rows if row["high"] is not None]
    # A wide interval of few repeats must not shrink the bars to nothing: it is cut at twice the longer bar.
    scale = min(max(tops, default=0.0), 2 * max(values, default=0.0)) * 1.02 or 1.0
    parts: list[str] = []
    for arm, row in enumerate(chart.rows):
        top, value, high = 38 * arm, row["value"], row["high"]
        parts.append(tag("text", row["name"], x="0", y=top + 12, style=f"fill:{_arm(arm)}"))
        parts.append(tag("text", row["text"], x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        if value is None:
            continue
        exact = tag("title", f"{row['name']}: {row['text']} ({value:.9g})")
        faint = None if high is None else 0.35
        parts.append(_rect(0, value / scale, top + 18, 10, f"var(--{ARMS[arm % 2]})", exact, opacity=faint))
        if high is not None:
            left, right = (min(1.0, x / scale) for x in (row["low"], high))
            strong = f"var(--{ARMS[arm % 2]}_strong)"
            parts.append(_line(left, right, top + 23, top + 23, strong, 1.8))
            parts.append(_line(left, left, top + 19, top + 27, strong, 1.6))
            if high <= scale:
                parts.append(_line(right, right, top + 19, top + 27, strong, 1.6))
    return _svg(chart, 38 * len(chart.rows) - 4, *parts)


def _change(chart: Chart, words: Words) -> Markup:
    """log2(candidate / baseline) from a sixteenth to sixteen times: the noise floor's band and the change's
    interval, in %; one row of value, low, high, floor. An interval that leaves the strip ends in an arrow."""
    (row,) = chart.rows
    # A quarter, the same, four times.
    parts: list[str] = [_line(x, x, 0, 22, "var(--border2)", 1) for x in (0.25, 0.5, 0.75)]
    if row["floor"] is not None:
        half = min(math.log2(1 + row["floor"] / 100) / STRIP_OCTAVES / 2, 0.5)
        parts.append(_rect(0.5 - half, 0.5 + half, 3, 16, "var(--border2)", least=3))
    bounds = (row["low"], row["high"]) if row["low"] is not None else (row["value"], row["value"])
    if row["value"] is not None:
        places = [0.5 + math.log2(max(1 + bound / 100, 1e-12)) / STRIP_OCTAVES / 2 for bound in bounds]
        low, high = (min(1.0, max(0.0, place)) for place in places)
        shown = None if row["low"] is None else [row["low"], row["high"]]
        title = f"{signed_percent(row['value'])} {interval(shown)}, {percent(row['floor'])}"
        parts.append(_rect(low, high, 5.5, 11, "var(--cand)", tag("title", title), least=4))
        if places[0] < 0:
            parts.append(tag("text", "◀", x="0", y="15"))
        if places[1] > 1:
            parts.append(tag("text", "▶", x="100%", y="15", text_anchor="end"))
    labels = ("÷4", words("same_tick"), "×4")
    for x, label in zip((25, 50, 75), labels, strict=True):
        parts.append(tag("text", label, x=f"{x}%", y="36", text_anchor="middle", class_="m"))
    return tag("svg", *parts, height="40", role="img", aria_label=signed_percent(row["value"]))


def _ledger(chart: Chart, words: Words) -> Markup:
    """One bar an arm, its accounts side by side, the total at the end, in MiB: rows of arm, name, account, bytes."""
    arms = [list(rows) for _, rows in groupby(chart.rows, key=lambda row: row["arm"])]
    sizes = [[(row["account"], (row["bytes"] or 0) / MIB) for row in rows] for rows in arms]
    scale = max(sum(size for _, size in arm) for arm in sizes) * 1.1 or 1.0
    parts: list[str] = []
    for line, (rows, accounts) in enumerate(zip(arms, sizes, strict=True)):
        name, top, place = rows[0]["name"], 52 * line, 0.0
        parts.append(tag("text", name, x="0", y=top + 12, style=f"fill:{_arm(line)}"))
        for account, size in accounts:
            if size <= 0:
                continue
            title = tag("title", f"{name}, {words(account)}: {number(size, 4)} MiB")
            parts.append(_account(account, place / scale, (place + size) / scale, top + 18, title))
            if size / scale >= 0.07 and account != "kv_free":
                ink = {"other": "var(--other_text)", "kv_reserved": "var(--text)"}.get(account, "var(--infill)")
                middle = f"{100 * (place + size / 2) / scale:.3f}%"
                parts.append(tag("text", number(size), x=middle, y=top + 35, text_anchor="middle", style=f"fill:{ink}"))
            place += size
        total = MISSING if all(row["bytes"] is None for row in rows) else number(place)
        parts.append(tag("text", total, x=f"{100 * place / scale + 0.6:.3f}%", y=top + 35, font_weight="600"))
    colours = {name: f"var(--{name})" for name in LEDGER} | {"kv_free": "transparent"}
    legend = _legend([(words(name), colour) for name, colour in colours.items()])
    return join(legend, _svg(chart, 52 * len(arms), *parts))


def _timeline(chart: Chart, words: Words) -> Markup:
    """The arms' requests on one time axis in s: queue, prefill, decode and slots held after the end, a row a request:
    rows of arm, request, row, kind, start_s, end_s; options arms: [{name, requests, last_token_s}]."""
    arms = chart.options["arms"]
    scale = max((row["end_s"] for row in chart.rows), default=0.0) * 1.02 or 1.0
    parts: list[str] = []
    marks: list[str] = []
    top = 0.0
    for place, arm in enumerate(arms):
        label = f"{arm['name']} · {words('requests_line', count=arm['requests'])}"
        parts.append(tag("text", label, x="0", y=top + 12, style=f"fill:{_arm(place)}"))
        first = top + 22
        own = [row for row in chart.rows if row["arm"] == place]
        marks += [_segment(row, place, first, scale, words) for row in own]
        bottom = first + ROW * arm["requests"]
        last = arm["last_token_s"]
        if last is not None:
            text = words("last_token", time=number(last))
            anchor = "end" if last / scale > 0.5 else "start"
            parts.append(_line(last / scale, last / scale, first - 4, bottom, "var(--text)", 1, dash="3 2"))
            parts.append(tag("text", text, x=f"{100 * last / scale:.3f}%", y=top + 12, text_anchor=anchor))
        top = bottom + 16
    axis: list[str] = []
    for value in ticks(scale):
        x = value / scale
        axis.append(_line(x, x, 18, top - 8, "var(--grid)", 1))
        anchor = "start" if value == 0 else "middle"
        axis.append(tag("text", f"{value:g}", x=f"{100 * x:.3f}%", y=top + 8, class_="m", text_anchor=anchor))
    legend = _legend([(words(key), colour) for key, colour in SEGMENTS])
    return join(legend, _svg(chart, top + 14, *axis, *marks, *parts))


def _latencies(chart: Chart, words: Words) -> Markup:
    """A bar to p50, a line to p95 and a tick at p99, s; its own scale a row: rows of name, p50, p95, p99."""
    parts: list[str] = []
    for place, row in enumerate(chart.rows):
        top = 50 * place
        p50, p95, p99 = (row[key] for key in ("p50", "p95", "p99"))
        parts.append(tag("text", row["name"], x="0", y=top + 12))
        shown = " · ".join(f"{key} {number(value)} s" for key, value in (("p50", p50), ("p95", p95), ("p99", p99)))
        parts.append(tag("text", shown, x="0", y=top + 28, class_="m"))
        scale = max((value for value in (p50, p95, p99) if value is not None), default=0.0) or 1.0
        if p50 is not None:
            exact = tag("title", f"{row['name']} p50 {p50:.9g} s")
            parts.append(_rect(0, p50 / scale, top + 34, 8, "var(--cand)", exact))
        if p50 is not None and p95 is not None:
            parts.append(_line(p50 / scale, p95 / scale, top + 38, top + 38, "var(--cand_strong)", 1.8))
        if p99 is not None:
            parts.append(_line(p99 / scale, p99 / scale, top + 34, top + 42, "var(--cand_strong)", 1.6))
    return _svg(chart, 50 * len(chart.rows), *parts)


def _bars(chart: Chart, words: Words) -> Markup:
    """A bar from zero, all on one scale: rows of name, value, text."""
    scale = max((row["value"] or 0.0 for row in chart.rows), default=0.0) or 1.0
    parts: list[str] = []
    for place, row in enumerate(chart.rows):
        top = 32 * place
        parts.append(tag("text", row["name"], x="0", y=top + 12))
        parts.append(tag("text", row["text"], x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        if row["value"] is not None:
            exact = tag("title", f"{row['name']}: {row['value']:.9g}")
            parts.append(_rect(0, max(0.0, row["value"]) / scale, top + 17, 8, "var(--cand)", exact))
    return _svg(chart, 32 * len(chart.rows), *parts)


def _intervals(chart: Chart, words: Words) -> Markup:
    """A dot with its interval around a line at the option `middle`: rows of name, value, low, high, text."""
    middle = chart.options.get("middle", 0.0)
    known = [row[key] for row in chart.rows for key in ("value", "low", "high") if row[key] is not None]
    reach = max((abs(value - middle) for value in known), default=0.0) * 1.05 or 1.0

    def place_of(value: float) -> float:
        return 0.5 + (value - middle) / reach / 2

    height = 32 * len(chart.rows)
    parts: list[str] = [_line(0.5, 0.5, 0, height, "var(--border2)", 1)]
    for place, row in enumerate(chart.rows):
        top = 32 * place
        parts.append(tag("text", row["name"], x="0", y=top + 12))
        parts.append(tag("text", row["text"], x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        if row["low"] is not None and row["high"] is not None:
            low, high = place_of(row["low"]), place_of(row["high"])
            parts.append(_line(low, high, top + 22, top + 22, "var(--cand_strong)", 1.8))
        if row["value"] is not None:
            dot = tag("title", f"{row['name']}: {row['text']}")
            x = f"{100 * place_of(row['value']):.3f}%"
            parts.append(tag("circle", dot, cx=x, cy=top + 22, r="4", style="fill:var(--cand)"))
    return _svg(chart, height, *parts)


def _xy(chart: Chart, words: Words) -> Markup:
    """y over x from zero: rows of name, x, y, low, high in the order of x. Options: x_label; dashed and dotted, the x
    of a vertical line each; joined, whether a line runs through the points."""
    there = [row for row in chart.rows if row["y"] is not None]
    if not there:
        return tag("p", MISSING, class_="muted")
    right = max(row["x"] for row in there) * 1.05 or 1.0
    upper = max(max(row["y"], row["high"] or 0.0) for row in there) * 1.08 or 1.0
    base, left = 156.0, 0.1

    def across(x: float) -> float:
        return left + (1 - left) * x / right

    def down(y: float) -> float:
        return base - (base - 16) * y / upper

    parts: list[str] = []
    for value in ticks(upper, 4):
        parts.append(_line(left, 1, down(value), down(value), "var(--grid)", 1))
        at = f"{100 * left - 1:.3f}%"
        parts.append(tag("text", f"{value:.4g}", x=at, y=f"{down(value) + 4:.1f}", text_anchor="end", class_="m"))
    for value in ticks(right, 5):
        at = f"{100 * across(value):.3f}%"
        parts.append(tag("text", f"{value:.4g}", x=at, y=base + 16, text_anchor="middle", class_="m"))
    parts.append(tag("text", str(chart.options["x_label"]), x="100%", y=base + 31, text_anchor="end", class_="m"))
    for mark, dash in ((chart.options.get("dashed"), "6 4"), (chart.options.get("dotted"), "1.5 4")):
        if mark is not None and 0 <= mark <= right:
            parts.append(_line(across(mark), across(mark), 8, base, "var(--worse)", 1.5, dash=dash))
    if chart.options.get("joined", True):
        for one, two in pairwise(there):
            parts.append(_line(across(one["x"]), across(two["x"]), down(one["y"]), down(two["y"]), "var(--cand)", 2))
    for row in there:
        if row["low"] is not None:
            x = across(row["x"])
            parts.append(_line(x, x, down(row["low"]), down(row["high"]), "var(--cand_strong)", 1.6))
        title = tag("title", f"{row['name']}: {number(row['y'], 4)}")
        at = f"{100 * across(row['x']):.3f}%"
        parts.append(tag("circle", title, cx=at, cy=f"{down(row['y']):.2f}", r="4", style="fill:var(--cand)"))
    return _svg(chart, 190, *parts)


def _cross(chart: Chart, words: Words) -> Markup:
    """Four arms of two variables, a line for each value of the second: rows of name, first, second, value in the order
    (0,0), (1,0), (0,1), (1,1); option product: where both together would be if the gains multiplied."""
    values, product = [row["value"] for row in chart.rows], chart.options["product"]
    top = max(*values, product)

    def height(value: float) -> float:
        return CROSS_HEIGHT - 30 - (CROSS_HEIGHT - 60) * value / top

    places = (CROSS_EDGE, CROSS_WIDTH - 2 * CROSS_EDGE)
    parts = [tag("circle", cx=places[1], cy=f"{height(product):.1f}", r=5, fill="none", stroke="currentColor")]
    for line, colour in ((0, "var(--base_strong)"), (1, "var(--cand)")):
        pair = chart.rows[2 * line : 2 * line + 2]
        y1, y2 = (f"{height(row['value']):.1f}" for row in pair)
        parts.append(tag("line", x1=places[0], y1=y1, x2=places[1], y2=y2, stroke=colour, stroke_width=2))
        for row, x in zip(pair, places, strict=True):
            y = height(row["value"])
            parts.append(tag("circle", cx=x, cy=f"{y:.1f}", r=3.5, fill=colour))
            parts.append(tag("text", number(row["value"]), x=x - 8, y=f"{y - 8:.1f}", fill="currentColor"))
        beside = f"{height(pair[1]['value']) + 4:.1f}"
        parts.append(tag("text", pair[1]["second"], x=places[1] + 10, y=beside, fill=colour))
    for row, x in zip(chart.rows[:2], places, strict=True):
        parts.append(tag("text", row["first"], x=x, y=CROSS_HEIGHT - 8, text_anchor="middle", fill="currentColor"))
    box = f"0 0 {CROSS_WIDTH} {CROSS_HEIGHT}"
    return tag("svg", *parts, viewBox=box, role="img", style="max-width:640px", aria_label=chart.title)


DRAWINGS: dict[str, Callable[[Chart, Words], Markup]] = {
    "arms": _arms, "change": _change, "ledger": _ledger, "timeline": _timeline, "latencies": _latencies, "bars": _bars,
    "intervals": _intervals, "xy": _xy, "cross": _cross,
}  # fmt: skip


# -- parts of drawings -------------------------------------------------------------------------------------------------


def _svg(chart: Chart, height: float, *parts: str) -> Markup:
    return tag("svg", *parts, height=f"{height:.0f}", role="img", aria_label=chart.title)


def _segment(row: Row, arm: int, first: float, scale: float, words: Words) -> Markup:
    start, end, kind = row["start_s"] / scale, row["end_s"] / scale, row["kind"]
    middle = first + ROW * row["row"] + ROW / 2
    span = f"{number(row['start_s'])}–{number(row['end_s'])} s"
    title = tag("title", f"{row['request']}: {words(kind)}, {span}")
    colour = ARMS[arm % 2]
    if kind == "queue":
        return _line(start, end, middle, middle, f"var(--queue_{colour})", 1, title)
    if kind == "held":
        return _line(start, end, middle, middle, f"var(--queue_{colour})", 1, title, dash="1 2.4")
    if kind == "prefill":
        return _rect(start, end, middle - 1.95, 3.9, f"var(--{colour}_strong)", title, least=2)
    return _rect(start, end, middle - 1.75, 3.5, f"var(--{colour})", title)


def _account(name: str, start: float, end: float, top: float, title: Markup) -> Markup:
    stroke = {"kv_reserved": "var(--kv_used)", "kv_free": "var(--queue_base)", "other": "var(--base)"}.get(name)
    fill = "none" if name == "kv_free" else f"var(--{name})"
    return _rect(start, end, top, 26, fill, title, stroke=stroke)


def _arm(arm: int) -> str:
    return "var(--muted)" if arm == 0 else "var(--cand)"


def _rect(
    start: float,
    end: float,
    top: float,
    height: float,
    fill: str,
    title: str | None = None,
    *,
    least: float = 0,
    opacity: float | None = None,
    stroke: str | None = None,
) -> Markup:
    """A bar between two shares of the width, at least `least` px wide."""
    box = {"x": f"{100 * start:.3f}%", "y": f"{top:.2f}", "height": f"{height:g}", "rx": "1.5"}
    style = f"fill:{fill};stroke:{stroke or 'none'}"
    width = f"{100 * max(0.0, end - start):.3f}%"
    if least:
        style += f";width:max({least:g}px,{width})"
    return tag("rect", title, **box, width=width, style=style, fill_opacity=opacity)


def _line(
    start: float,
    end: float,
    top: float,
    bottom: float,
    stroke: str,
    width: float,
    title: str | None = None,
    *,
    dash: str | None = None,
) -> Markup:
    ends = {"x1": f"{100 * start:.3f}%", "x2": f"{100 * end:.3f}%", "y1": f"{top:.2f}", "y2": f"{bottom:.2f}"}
    return tag("line", title, **ends, style=f"stroke:{stroke};stroke-width:{width:g}", stroke_dasharray=dash)


def _legend(items: Sequence[tuple[str, str]]) -> Markup:
    """Swatches with names; a colour, "line" or "dots"."""
    made = []
    for text, colour in items:
        mark = tag("i", class_=colour) if colour in ("line", "dots") else tag("i", style=f"background:{colour}")
        made.append(tag("span", mark, text))
    return tag("div", *made, class_="legend")
