"""The report of a load sweep: both knees and the limits in words, the curves, and every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report import charts, parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.html import Markup, tag
from experiments.report.kinds import Records, Report, Result, title_of
from experiments.report.page import badge, card, heading, plain, table
from experiments.report.words import MISSING, Words, number
from experiments.store import Run

CURVES = {
    "curve_throughput": "output_tokens_per_s",
    "curve_ttft": "ttft_p95_s",
    "curve_itl": "itl_p95_s",
    "curve_goodput": "goodput_rps",
}
UNITS = {"curve_throughput": "output tokens/s", "curve_ttft": "s", "curve_itl": "s", "curve_goodput": "requests/s"}
DEFINED = (*OF_A_RUN, "latency_per_token_s", "knee", "limits", "energy")


def of_sweep(run: Run, result: Result, records: Records, words: Words) -> Report:
    """Its builder, as those of kinds.py."""
    label = str(result.get("provenance", "measured"))
    points = list(result.get("points") or [])
    knees, limits = result.get("knees") or {}, result.get("limits") or {}
    lines = [*_knee_lines(knees, words), *_limit_lines(result, limits, words)]
    metrics = [(str(point["label"]), point.get("metrics") or {}) for point in points]
    sections = (
        _curves(result, points, knees, label, words),
        _knees(knees, limits, words),
        _points(points, label, words),
        parts.energy(metrics, words),
        _unavailable(result.get("unavailable") or [], words),
        *(parts.other_terms(one, words) for _, one in metrics[-1:]),
    )
    return Report(title_of(run, words), " ".join(lines[:2]), sections, tuple(lines[2:]), DEFINED)


def _knee_lines(knees: Mapping[str, Any], words: Words) -> list[str]:
    latency, memory = knees.get("latency") or {}, knees.get("memory") or {}
    low, high = latency.get("ci95") or (None, None)
    first = (
        words("knee_latency", load=number(latency.get("load")), low=number(low), high=number(high))
        if latency.get("found")
        else words("knee_latency_none")
    )
    second = (
        words("knee_memory", load=_at(memory)) if memory.get("found") else words("knee_memory_none")
    )  # fmt: skip
    return [first, second]


def _at(knee: Mapping[str, Any]) -> str:
    """Where a memory knee is: the load where the pool was pressed first."""
    found = next((knee[name] for name in ("next_load", "load", "value", "label") if knee.get(name) is not None), None)
    return number(found) if isinstance(found, int | float) else plain(found)


def _limit_lines(result: Result, limits: Mapping[str, Any], words: Words) -> list[str]:
    lines = []
    if best := result.get("goodput"):
        lines.append(words("best_goodput", goodput=number(best["goodput_rps"]), label=best["label"]))
    if limits.get("instance_limit_rps") is not None:
        limit, more = number(limits["instance_limit_rps"]), number(limits.get("scale_out_rps"))
        lines.append(words("limit", limit=limit, scale_out=more))
    if limits.get("instances") is not None:
        lines.append(words("instances", instances=limits["instances"], demand=number(limits.get("demand_rps"))))
    return lines


def _curves(
    result: Result, points: Sequence[Mapping[str, Any]], knees: Mapping[str, Any], label: str, words: Words
) -> Markup:
    over = result.get("over") or {}
    numeric = [point for point in points if isinstance(point.get("value"), int | float)]
    if over.get("of_variable") or not numeric:
        bars = [(str(point["label"]), float(point.get("output_tokens_per_s") or 0.0),
                 number(point.get("output_tokens_per_s"))) for point in points]  # fmt: skip
        drawn = [tag("div", tag("h3", words("curve_throughput")), charts.plain_bars(bars), class_="card")]
    else:
        axis = "axis_concurrency" if over.get("name") == "concurrency" else "axis_rate"
        drawn = [_curve(name, field, numeric, knees, words(axis), words) for name, field in CURVES.items()
                 if any(point.get(field) is not None for point in numeric)]  # fmt: skip
    cost = [(point["ttft_p95_s"], point.get("cost_per_million_output_tokens"), None, str(point["label"]))
            for point in points if point.get("ttft_p95_s") is not None]  # fmt: skip
    cost.sort(key=lambda one: float(one[0]))
    drawn.append(
        tag(
            "div",
            tag("h3", words("curve_cost")),
            charts.xy(cost, x_label="TTFT p95, s", name=words("curve_cost"), joined=False),
            class_="card",
        )
    )
    return tag(
        "section",
        heading(words("sweep_curves"), label, words, words("sweep_caption")),
        tag("div", *drawn, class_="grid two"),
    )


def _curve(
    name: str, field: str, points: Sequence[Mapping[str, Any]], knees: Mapping[str, Any], axis: str, words: Words
) -> Markup:
    latency, memory = knees.get("latency") or {}, knees.get("memory") or {}
    marks = (latency.get("load") if latency.get("found") else None,
             memory.get("next_load", memory.get("load")) if memory.get("found") else None)  # fmt: skip
    rows = []
    for point in points:
        values = [one[field] for one in point.get("repeats") or [] if one.get(field) is not None]
        bounds = (min(values), max(values)) if len(values) > 1 else None
        rows.append((float(point["value"]), point.get(field), bounds, str(point["label"])))
    rows.sort(key=lambda row: row[0])
    return tag(
        "div",
        tag("h3", words(name)),
        tag("div", UNITS[name], class_="caption"),
        charts.xy(rows, x_label=axis, name=words(name), dashed=_number(marks[0]), dotted=_number(marks[1])),
        class_="card",
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _knees(knees: Mapping[str, Any], limits: Mapping[str, Any], words: Words) -> Markup:
    names = {"latency": "latency_knee", "offered": "served_knee", "memory": "memory_knee"}
    rows: list[list[str | Markup]] = []
    for name, word in names.items():
        knee = knees.get(name) or {}
        found = _at(knee) if name == "memory" else number(_number(knee.get("load")))
        rows.append([words(word), found if knee.get("found") else MISSING, badge("computed", words),
                     str(knee.get("reason") or "")])  # fmt: skip
    if limits:
        rows.append([words("instance_limit"), number(limits.get("instance_limit_rps")), badge("computed", words),
                     " · ".join(filter(None, [limits.get("reason"), limits.get("formula")]))])  # fmt: skip
    header = [words("what"), words("load_at"), words("label"), words("reason")]
    return card(heading(words("knees"), None, words), table(header, rows, numeric=(1,)))


def _points(points: Sequence[Mapping[str, Any]], label: str, words: Words) -> Markup:
    answer: dict[Any, str] = {True: words("yes"), False: words("no")}
    rows = [
        [str(point["label"]), number(point.get("output_tokens_per_s")), number(point.get("requests_per_s")),
         number(point.get("ttft_p95_s")), number(point.get("itl_p95_s")), number(point.get("goodput_rps")),
         answer.get(point.get("meets"), MISSING), _peak(point), number(point.get("cost_per_million_output_tokens")),
         plain((point.get("metrics") or {}).get("completed"))]
        for point in points
    ]  # fmt: skip
    header = [words("point"), "tokens/s", words("m_requests_per_s"), "TTFT p95, s", "ITL p95, s",
              words("m_goodput_rps"), words("objectives_met"), words("kv_peak"),
              words("m_cost_per_million_output_tokens"), "n"]  # fmt: skip
    return card(heading(words("points_of"), label, words), table(header, rows, numeric=(*range(1, 6), 8, 9)))


def _peak(point: Mapping[str, Any]) -> str:
    share = (point.get("kv") or {}).get("peak_share")
    return MISSING if share is None else f"{100 * share:.0f} %"


def _unavailable(found: Sequence[Mapping[str, Any]], words: Words) -> Markup | None:
    if not found:
        return None
    rows = [[str(one.get("label")), str(one.get("reason"))] for one in found]
    return card(heading(words("unavailable"), None, words), table([words("point"), words("reason")], rows))
