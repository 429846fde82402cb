"""The report of a load sweep: both knees and the limits in words, the curves, and every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report import parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Cell, Chart, Findings, Section, chart, section, table
from experiments.report.parts import count, figure, plain, yes_no
from experiments.report.titles import Records, Result, label_of, title_of
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


def of_sweep(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """Knees, limits, curves and points."""
    label, points = label_of(result), list(result.get("points") or [])
    knees, limits = result.get("knees") or {}, result.get("limits") or {}
    lines = [*_knee_lines(knees, words), *_limit_lines(result, limits, words)]
    metrics = [(str(point["label"]), point.get("metrics") or {}) for point in points]
    missing = [[str(one.get("label")), str(one.get("reason"))] for one in result.get("unavailable") or []]
    sections = (
        _curves(result, points, knees, label, words),
        _knees(knees, limits, words),
        _points(points, label, words),
        parts.energy(metrics, words),
        section(words("unavailable"), None, table([words("point"), words("reason")], missing)) if missing else None,
        *(parts.other_terms(one, words) for _, one in metrics[-1:]),
    )
    over, workload = result.get("over") or {}, run.spec.get("workload", MISSING)
    asked = words("q_sweep", over=parts.named("over", str(over.get("name") or run.spec.get("over")), words),
                  workload=workload)  # fmt: skip
    price = words("price", price=number(run.spec.get("price_per_device_hour") or 1.0))
    caveats = (words("c_sweep"), *parts.few_samples((one for _, one in metrics), words), price)
    return Findings(title_of(run, words), asked, " ".join(lines[:2]), sections, more=tuple(lines[2:]), caveats=caveats,
                    defined=DEFINED)  # fmt: skip


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
) -> Section:
    over = result.get("over") or {}
    numeric = [point for point in points if isinstance(point.get("value"), int | float)]
    if over.get("of_variable") or not numeric:
        rows = [(str(point["label"]), point.get("output_tokens_per_s"), number(point.get("output_tokens_per_s")))
                for point in points]  # fmt: skip
        title = words("curve_throughput")
        drawn = [section(title, label, parts.bars(title, rows), caption=UNITS["curve_throughput"])]
    else:
        axis = words("axis_concurrency" if over.get("name") == "concurrency" else "axis_rate")
        drawn = [
            section(words(name), label, _curve(name, field, numeric, knees, axis, words), caption=UNITS[name])
            for name, field in CURVES.items()
            if any(point.get(field) is not None for point in numeric)
        ]
    title = words("curve_cost")
    timed = [point for point in points if point.get("ttft_p95_s") is not None]
    cost = [
        {"name": str(point["label"]), "x": float(point["ttft_p95_s"]),
         "y": point.get("cost_per_million_output_tokens"), "low": None, "high": None}
        for point in sorted(timed, key=lambda point: float(point["ttft_p95_s"]))
    ]  # fmt: skip
    # The price is assumed, so a cost is computed from it.
    drawn.append(section(title, "computed", chart("xy", title, cost, x_label="TTFT p95, s", joined=False)))
    return section(words("sweep_curves"), None, *drawn, caption=words("sweep_caption"), layout="wide_grid")


def _curve(
    name: str, field: str, points: Sequence[Mapping[str, Any]], knees: Mapping[str, Any], axis: str, words: Words
) -> Chart:
    latency, memory = knees.get("latency") or {}, knees.get("memory") or {}
    rows = []
    for point in points:
        values = [one[field] for one in point.get("repeats") or [] if one.get(field) is not None]
        ends = (min(values), max(values)) if len(values) > 1 else None
        rows.append({"name": str(point["label"]), "x": float(point["value"]), "y": point.get(field),
                     **parts.low_high(ends)})  # fmt: skip
    return chart(
        "xy", words(name), sorted(rows, key=lambda row: row["x"]), x_label=axis,
        dashed=_number(latency.get("load") if latency.get("found") else None),
        dotted=_number(memory.get("next_load", memory.get("load")) if memory.get("found") else None),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _knees(knees: Mapping[str, Any], limits: Mapping[str, Any], words: Words) -> Section:
    names = {"latency": "latency_knee", "offered": "served_knee", "memory": "memory_knee"}
    rows: list[list[Any]] = []
    for name, word in names.items():
        knee = knees.get(name) or {}
        of_memory = name == "memory"
        found = Cell(_at(knee), _number(knee.get("next_load"))) if of_memory else figure(knee.get("load"))
        rows.append([words(word), found if knee.get("found") else MISSING, parts.bounds(knee.get("ci95")),
                     Cell("", None, "computed"), str(knee.get("reason") or "")])  # fmt: skip
    if limits:
        limit = figure(limits.get("instance_limit_rps"))
        rows.append([words("instance_limit"), limit, MISSING, Cell("", None, "computed"),
                     " · ".join(filter(None, [limits.get("reason"), limits.get("formula")]))])  # fmt: skip
    header = [words("what"), words("load_at"), words("col_interval"), words("label"), words("reason")]
    return section(words("knees"), None, table(header, rows, (1, 2)))


def _points(points: Sequence[Mapping[str, Any]], label: str, words: Words) -> Section:
    rows = [
        [str(point["label"]), figure(point.get("output_tokens_per_s")), figure(point.get("requests_per_s")),
         figure(point.get("ttft_p95_s")), figure(point.get("itl_p95_s")), figure(point.get("goodput_rps")),
         yes_no(point.get("meets"), words), _peak(point), figure(point.get("cost_per_million_output_tokens")),
         count((point.get("metrics") or {}).get("completed"))]
        for point in points
    ]  # fmt: skip
    header = [words("point"), "tokens/s", words("m_requests_per_s"), "TTFT p95, s", "ITL p95, s",
              words("m_goodput_rps"), words("objectives_met"), words("kv_peak"),
              words("m_cost_per_million_output_tokens"), "n"]  # fmt: skip
    return section(words("points_of"), label, table(header, rows, (*range(1, 6), 7, 8, 9)))


def _peak(point: Mapping[str, Any]) -> Cell:
    share = (point.get("kv") or {}).get("peak_share")
    return Cell(MISSING if share is None else f"{100 * share:.0f} %", share)
