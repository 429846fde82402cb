"""Inline SVG of a report: curve bars, the change strip, the memory ledger and the request timeline.

Positions across are percentages and text keeps its size, so a chart fits any width. Colours are the page's variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from experiments.report.html import Markup, join, tag
from experiments.report.words import MISSING, Words, curve_value, interval, number, percent, signed_percent
from experiments.timeline import last_token_s, request_segments

ARMS = ("base", "cand")
MIB = 2**20
STRIP_OCTAVES = 4.0
ROW = 4.6
LEDGER = ("weights", "kv_used", "kv_reserved", "kv_free", "activations", "other")


def ticks(end: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to at most `end`, at most `most` + 1 of them."""
    if end <= 0:
        return [0.0]
    raw = end / most
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * (1 - 1e-9))
    return [step * i for i in range(math.floor(end / step + 1e-9) + 1)]


def curve_bars(curve: Mapping[str, Any], names: Sequence[str]) -> Markup:
    """One bar an arm from zero, with its value and the 95 % interval of the arm's geometric mean."""
    values = [curve["baseline"], curve["candidate"]]
    bounds = [curve.get("baseline_ci95"), curve.get("candidate_ci95")]
    tops = [value for value in values if value is not None] + [bound[1] for bound in bounds if bound]
    # A wide interval of few repeats must not shrink the bars to nothing: it is cut at twice the longer bar.
    longest = max([value for value in values if value is not None], default=0.0)
    scale = min(max(tops, default=0.0), 2 * longest) * 1.02 or 1.0
    parts: list[str] = []
    for arm, (value, bound) in enumerate(zip(values, bounds, strict=True)):
        top = 38 * arm
        shown = curve_value(curve["name"], value)
        parts.append(tag("text", names[arm], x="0", y=top + 12, style=f"fill:{_arm(arm)}"))
        parts.append(tag("text", shown, x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        if value is None:
            continue
        exact = tag("title", f"{names[arm]}: {shown} ({value:.9g})")
        parts.append(
            _rect(0, value / scale, top + 18, 10, f"var(--{ARMS[arm]})", exact, opacity=0.35 if bound else None)
        )
        if bound:
            low, high = (min(1.0, x / scale) for x in bound)
            strong = f"var(--{ARMS[arm]}_strong)"
            parts.append(_line(low, high, top + 23, top + 23, strong, 1.8))
            parts.append(_line(low, low, top + 19, top + 27, strong, 1.6))
            if bound[1] <= scale:
                parts.append(_line(high, high, top + 19, top + 27, strong, 1.6))
    return tag("svg", *parts, height="72", role="img", aria_label=f"{names[0]}, {names[1]}")


def change_strip(curve: Mapping[str, Any], words: Words) -> Markup:
    """log2(candidate / baseline) from a sixteenth to sixteen times: the noise floor's band and the change's interval.

    An interval that leaves the strip ends in an arrow.
    """
    parts: list[str] = [
        _line(x, x, 0, 22, "var(--border2)", 1) for x in (0.25, 0.5, 0.75)
    ]  # a quarter, the same, four times
    floor = curve.get("noise_floor_pct")
    if floor is not None:
        half = min(math.log2(1 + floor / 100) / STRIP_OCTAVES / 2, 0.5)
        parts.append(_rect(0.5 - half, 0.5 + half, 3, 16, "var(--border2)", least=3))
    bounds = curve["ci95"] or ([curve["change_pct"]] * 2 if curve["change_pct"] is not None else None)
    if bounds is not None:
        places = [0.5 + math.log2(max(1 + bound / 100, 1e-12)) / STRIP_OCTAVES / 2 for bound in bounds]
        low, high = (min(1.0, max(0.0, place)) for place in places)
        title = f"{signed_percent(curve['change_pct'])} {interval(curve['ci95'])}, {percent(floor)}"
        parts.append(_rect(low, high, 5.5, 11, "var(--cand)", tag("title", title), least=4))
        if places[0] < 0:
            parts.append(tag("text", "◀", x="0", y="15"))
        if places[1] > 1:
            parts.append(tag("text", "▶", x="100%", y="15", text_anchor="end"))
    labels = ("÷4", words("same_tick"), "×4")
    for x, label in zip((25, 50, 75), labels, strict=True):
        parts.append(tag("text", label, x=f"{x}%", y="36", text_anchor="middle", class_="m"))
    return tag("svg", *parts, height="40", role="img", aria_label=signed_percent(curve["change_pct"]))


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


def ledger_bars(memories: Sequence[Mapping[str, Any]], names: Sequence[str], words: Words) -> Markup:
    """One bar an arm, its accounts side by side, the total at the end, in MiB."""
    arms = [{name: (value or 0) / MIB for name, value in ledger_accounts(memory).items()} for memory in memories]
    scale = max(sum(arm.values()) for arm in arms) * 1.1 or 1.0
    parts: list[str] = []
    for row, arm in enumerate(arms):
        top, place = 52 * row, 0.0
        parts.append(tag("text", names[row], x="0", y=top + 12, style=f"fill:{_arm(row)}"))
        for name in LEDGER:
            size = arm[name]
            if size <= 0:
                continue
            title = tag("title", f"{names[row]}, {words(name)}: {number(size, 4)} MiB")
            parts.append(_account(name, place / scale, (place + size) / scale, top + 18, title))
            if size / scale >= 0.07 and name != "kv_free":
                ink = {"other": "var(--other_text)", "kv_reserved": "var(--text)"}.get(name, "var(--infill)")
                middle = f"{100 * (place + size / 2) / scale:.3f}%"
                parts.append(tag("text", number(size), x=middle, y=top + 35, text_anchor="middle", style=f"fill:{ink}"))
            place += size
        parts.append(tag("text", number(place), x=f"{100 * place / scale + 0.6:.3f}%", y=top + 35, font_weight="600"))
    return tag("svg", *parts, height=str(52 * len(arms)), role="img", aria_label=words("memory"))


def timeline(records: Sequence[Mapping[str, Any]], names: Sequence[str], words: Words) -> Markup:
    """Both arms' requests on one time axis: queue, prefill, decode and slots held after the end, a row a request."""
    arms = [request_segments(record) for record in records]
    ends = [segment["end_s"] for segments in arms for segment in segments]
    scale = max(ends, default=0.0) * 1.02 or 1.0
    parts: list[str] = []
    marks: list[str] = []
    top = 0.0
    for arm, (record, segments) in enumerate(zip(records, arms, strict=True)):
        count = len(record["requests"])
        label = f"{names[arm]} · {words('requests_line', count=count)}"
        parts.append(tag("text", label, x="0", y=top + 12, style=f"fill:{_arm(arm)}"))
        first = top + 22
        marks += [_segment(segment, arm, first, scale, words) for segment in segments]
        bottom = first + ROW * count
        last = last_token_s(record)
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
    return tag("svg", *axis, *marks, *parts, height=f"{top + 14:.0f}", role="img", aria_label=words("timeline"))


def _segment(segment: Mapping[str, Any], arm: int, first: float, scale: float, words: Words) -> Markup:
    start, end, kind = segment["start_s"] / scale, segment["end_s"] / scale, segment["kind"]
    middle = first + ROW * segment["row"] + ROW / 2
    span = f"{number(segment['start_s'])}–{number(segment['end_s'])} s"
    title = tag("title", f"{segment['request']}: {words(kind)}, {span}")
    queue = f"var(--queue_{ARMS[arm]})"
    if kind == "queue":
        return _line(start, end, middle, middle, queue, 1, title)
    if kind == "held":
        return _line(start, end, middle, middle, queue, 1, title, dash="1 2.4")
    if kind == "prefill":
        return _rect(start, end, middle - 1.95, 3.9, f"var(--{ARMS[arm]}_strong)", title, least=2)
    return _rect(start, end, middle - 1.75, 3.5, f"var(--{ARMS[arm]})", title)


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


def legend(kinds: Sequence[tuple[str, str]], words: Words) -> Markup:
    """Swatches with names; a kind's colour is a variable name, "line" or "dots"."""
    items = []
    for key, colour in kinds:
        mark = tag("i", class_=colour) if colour in ("line", "dots") else tag("i", style=f"background:{colour}")
        items.append(tag("span", mark, words(key)))
    return tag("div", join(*items), class_="legend")


def latency_bars(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Markup:
    """A bar to p50, a line to p95 and a tick at p99 for each (name, summary in s); its own scale a row."""
    parts: list[str] = []
    for place, (name, one) in enumerate(rows):
        top = 50 * place
        p50, p95, p99 = (one.get(key) for key in ("p50", "p95", "p99"))
        parts.append(tag("text", name, x="0", y=top + 12))
        shown = " · ".join(f"{key} {number(value)} s" for key, value in (("p50", p50), ("p95", p95), ("p99", p99)))
        parts.append(tag("text", shown, x="0", y=top + 28, class_="m"))
        scale = max((value for value in (p50, p95, p99) if value is not None), default=0.0) or 1.0
        if p50 is not None:
            parts.append(_rect(0, p50 / scale, top + 34, 8, "var(--cand)", tag("title", f"{name} p50 {p50:.9g} s")))
        if p50 is not None and p95 is not None:
            parts.append(_line(p50 / scale, p95 / scale, top + 38, top + 38, "var(--cand_strong)", 1.8))
        if p99 is not None:
            parts.append(_line(p99 / scale, p99 / scale, top + 34, top + 42, "var(--cand_strong)", 1.6))
    return tag("svg", *parts, height=str(50 * len(rows)), role="img", aria_label=", ".join(name for name, _ in rows))


def plain_bars(rows: Sequence[tuple[str, float, str]]) -> Markup:
    """A bar from zero for each (name, size, what is written beside it), all on one scale."""
    scale = max((size for _, size, _ in rows), default=0.0) or 1.0
    parts: list[str] = []
    for place, (name, size, shown) in enumerate(rows):
        top = 32 * place
        parts.append(tag("text", name, x="0", y=top + 12))
        parts.append(tag("text", shown, x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        parts.append(_rect(0, max(0.0, size) / scale, top + 17, 8, "var(--cand)", tag("title", f"{name}: {size:.9g}")))
    return tag("svg", *parts, height=str(32 * len(rows)), role="img", aria_label=", ".join(row[0] for row in rows))


def interval_rows(rows: Sequence[tuple[str, float | None, Sequence[float] | None, str]], middle: float = 0.0) -> Markup:
    """A dot with its interval for each (name, value, bounds, what is written), around a line at `middle`."""
    known = [value for _, value, bounds, _ in rows for value in (value, *(bounds or ())) if value is not None]
    reach = max((abs(value - middle) for value in known), default=0.0) * 1.05 or 1.0

    def place_of(value: float) -> float:
        return 0.5 + (value - middle) / reach / 2

    height = 32 * len(rows)
    parts: list[str] = [_line(0.5, 0.5, 0, height, "var(--border2)", 1)]
    for place, (name, value, bounds, shown) in enumerate(rows):
        top = 32 * place
        parts.append(tag("text", name, x="0", y=top + 12))
        parts.append(tag("text", shown, x="100%", y=top + 12, text_anchor="end", font_weight="600"))
        if bounds is not None:
            low, high = (place_of(bound) for bound in bounds)
            parts.append(_line(low, high, top + 22, top + 22, "var(--cand_strong)", 1.8))
        if value is not None:
            x = f"{100 * place_of(value):.3f}%"
            dot = tag("title", f"{name}: {shown}")
            parts.append(tag("circle", dot, cx=x, cy=top + 22, r="4", style="fill:var(--cand)"))
    return tag("svg", *parts, height=str(height), role="img", aria_label=", ".join(row[0] for row in rows))


def xy(
    points: Sequence[tuple[float, float | None, Sequence[float] | None, str]],
    *,
    x_label: str,
    name: str,
    dashed: float | None = None,
    dotted: float | None = None,
    joined: bool = True,
) -> Markup:
    """y over x from zero: (x, y, bounds of y, what the point is called) in order of x; two marks on the x axis.

    Points without y are left out. dashed, dotted: x of a vertical line each.
    """
    there = [(x, y, bounds, label) for x, y, bounds, label in points if y is not None]
    if not there:
        return tag("p", MISSING, class_="muted")
    right = max(x for x, *_ in there) * 1.05 or 1.0
    upper = max(max(y, *(bounds or (y,))) for _, y, bounds, _ in there) * 1.08 or 1.0
    height, base, left = 190.0, 156.0, 0.1

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
    parts.append(tag("text", x_label, x="100%", y=base + 31, text_anchor="end", class_="m"))
    for mark, dash in ((dashed, "6 4"), (dotted, "1.5 4")):
        if mark is not None and 0 <= mark <= right:
            parts.append(_line(across(mark), across(mark), 8, base, "var(--worse)", 1.5, dash=dash))
    if joined:
        for (x0, y0, *_), (x1, y1, *_) in pairwise(there):
            parts.append(_line(across(x0), across(x1), down(y0), down(y1), "var(--cand)", 2))
    for x, y, bounds, label in there:
        if bounds is not None:
            parts.append(_line(across(x), across(x), down(bounds[0]), down(bounds[1]), "var(--cand_strong)", 1.6))
        title = tag("title", f"{label}: {number(y, 4)}")
        at = f"{100 * across(x):.3f}%"
        parts.append(tag("circle", title, cx=at, cy=f"{down(y):.2f}", r="4", style="fill:var(--cand)"))
    return tag("svg", *parts, height=f"{height:.0f}", role="img", aria_label=name)
