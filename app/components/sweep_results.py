"""The result of a sweep: verdict, throughput and latencies over the load with both knees, trade-offs, table, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import load_chart, trade_chart
from app.components.calculator import files, link
from app.components.capacity_lines import capacity_lines
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.report.words import MISSING, number, percent
from experiments.store import Run
from experiments.sweep_view import (
    Band,
    Verdict,
    band,
    curve,
    is_numeric,
    memory_rows,
    sweep_command,
    table,
    trade,
    verdict,
)

COLOURS = {"limit": "green", "knee": "blue", "bound": "gray", "variable": "blue"}


def results(run: Run) -> None:
    """Draw everything below the box of stored sweeps."""
    result: Mapping[str, Any] = run.result or {}
    said = verdict(result)
    _verdict(said, result)
    capacity_lines(result)
    _throughput(result)
    _against(result)
    _cost(result)
    if result["slo"]:
        _goodput(result)
    _memory(result)
    _table(result)
    _knees(result)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"load.{kind}"))
    _export(run, result)


def _verdict(said: Verdict, result: Mapping[str, Any]) -> None:
    """One sentence: knee, limit, threshold; what was not reached is said as such."""
    with st.container(border=True, key="verdict"):
        labels = f"{badge(result['provenance'])} {badge('computed')}"
        st.markdown(f":{COLOURS[said.kind]}-badge[{t(f'load.kind_{said.kind}')}] {labels}")
        with st.container(key="verdict_sentence"):
            st.markdown(escape(sentences(_sentences(said, _unit(result)))))
        for one in result["unavailable"]:
            st.caption(escape(f"{_point(one['label'])}: {translated(one['reason'])}"))
        for warning in result["warnings"]:
            st.caption(f":orange[▲] {escape(translated(warning))}")


def _sentences(said: Verdict, unit: str) -> list[str]:
    """unit: key of how a load is called, which has {n} in it."""
    found = []
    if said.kind == "variable":
        if said.best is not None:
            found.append(t("load.best", best=_point(said.best)))
    else:
        found.append(_between("latency", said.latency, said.top, unit))
    if said.memory is not None or said.kind != "variable":
        found.append(_between("memory", said.memory, said.top, unit))
    if said.limit_rps is not None:
        key = "load.limit_at_least" if said.at_least else "load.limit"
        found.append(t(key, limit=number(said.limit_rps), scale_out=number(said.scale_out_rps)))
    elif said.kind == "knee":
        found.append(t("load.no_limit", reason=translated(said.reason)))
    if said.instances is not None:
        found.append(t("load.instances", count=said.instances, demand=f"{said.demand_rps:g}"))
    return found


def _between(name: str, found: Band | None, top: str, unit: str) -> str:
    if found is None:
        return t(f"load.no_{name}_knee", top=_point(top))
    high = t(unit, n=f"{found.high:g}")
    if found.low is None:
        return t(f"load.{name}_knee_below", high=high)
    return t(f"load.{name}_knee", low=f"{found.low:g}", high=high)


def _unit(result: Mapping[str, Any]) -> str:
    if result["over"]["of_variable"]:
        return "load.at_value"
    return "load.at_clients" if result["over"]["name"] == "concurrency" else "load.at_rate"


def _point(label: str) -> str:
    """A point's name in the language of the page."""
    return translated(label)


def _axis(result: Mapping[str, Any]) -> str:
    name = result["over"]["name"]
    if result["over"]["of_variable"]:
        return str(name)
    return t("load.axis_clients" if name == "concurrency" else "load.axis_rate")


def _shown(result: Mapping[str, Any], knee: str) -> tuple[float, float] | None:
    """The band of a knee on a numeric axis; one below the first load begins there."""
    found = band(result["knees"][knee])
    if found is None or not is_numeric(result):
        return None
    return (found.high if found.low is None else found.low), found.high


def _figure(
    result: Mapping[str, Any], name: str, unit: str, key: str, knee: str | None = "latency", **more: Any
) -> None:
    """A section with one figure over the load."""
    rows = more.pop("rows", None) or curve(result, name)
    if not rows:
        return
    with st.container(border=True):
        frame = pd.DataFrame(rows)
        section_head(f"{t(f'load.{key}')} {badge(more.pop('label', 'measured'))}", t(f"load.{key}_caption"), frame, key)
        shown = [{**row, "label": _point(row["label"])} for row in rows]
        limit = _shown(result, knee) if knee else None
        draw(
            load_chart(shown, limit, unit, _axis(result), mode(), words("chart."), **more),
            t("alt.load", what=t(f"load.{key}")),
        )


def _throughput(result: Mapping[str, Any]) -> None:
    _figure(result, "output_tokens_per_s", t("chart.rate_unit"), "throughput")


def _against(result: Mapping[str, Any]) -> None:
    """Throughput against TTFT and against ITL, side by side."""
    for column, (key, field) in zip(st.columns(2), (("ttft", "ttft_p95_s"), ("itl", "itl_p95_s")), strict=True):
        with column:
            _trade(result, f"against_{key}", ("output_tokens_per_s", field), ("", "s"), None, "measured")


def _trade(
    result: Mapping[str, Any],
    key: str,
    fields: tuple[str, str],
    units: tuple[str, str],
    front: str | None,
    label: str,
) -> None:
    rows = trade(result, *fields, front)
    if not rows:
        return
    with st.container(border=True):
        caption = sentences([t(f"load.{key}_caption"), t("load.numbers", load=_axis(result))])
        section_head(f"{t(f'load.{key}')} {badge(label)}", caption, pd.DataFrame(rows), key)
        shown = [{**row, "label": _point(row["label"])} for row in rows]
        titles = (t(f"load.{key}_x"), t(f"load.{key}_y"))
        draw(trade_chart(shown, titles, units, mode(), words("chart.")), t("alt.load", what=t(f"load.{key}")))


def _cost(result: Mapping[str, Any]) -> None:
    """Cost against both latencies, the Pareto front filled; the price is assumed."""
    for column, field in zip(st.columns(2), ("ttft_p95_s", "itl_p95_s"), strict=True):
        with column:
            key = f"cost_{field.split('_')[0]}"
            _trade(result, key, ("cost_per_million_output_tokens", field), ("", "s"), field, "computed")


def _goodput(result: Mapping[str, Any]) -> None:
    _figure(result, "goodput_rps", t("load.per_s"), "goodput")


def _memory(result: Mapping[str, Any]) -> None:
    rows = memory_rows(result)
    if rows:
        _figure(result, "kv", "%", "memory", knee="memory", rows=rows, limit=100.0)
        predicted = result["knees"]["memory"].get("predicted")
        if predicted:
            held = t("load.pool_holds", mean=predicted["all_mean"], longest=predicted["all_longest"])
            st.caption(f"{badge('computed')} {held}  \n`{translated(predicted['formula'])}`")


def _table(result: Mapping[str, Any]) -> None:
    """The figures that people ask for; the file has them all."""
    rows = table(result)
    with st.container(border=True):
        section_head(f"{t('load.points')} {badge('measured')}", t("load.points_caption"), pd.DataFrame(rows), "points")
        columns = {"point": "point", "output_tokens_per_s": "tokens", "requests_per_s": "requests",
                   "ttft_p95_s": "ttft", "itl_p95_s": "itl", "goodput_rps": "goodput", "kv_peak_share": "kv",
                   "cost_per_million_output_tokens": "cost"}  # fmt: skip
        rows = [{**row, "kv_peak_share": percent(_hundred(row["kv_peak_share"]))} for row in rows]
        shown = [{t(f"load.col_{key}"): _cell(row[name]) for name, key in columns.items()} for row in rows]
        st.dataframe(pd.DataFrame(shown), hide_index=True)  # eight columns: a phone scrolls them


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _cell(value: Any) -> str:
    if value is None:
        return MISSING
    return _point(value) if isinstance(value, str) else number(value)


def _knees(result: Mapping[str, Any]) -> None:
    """How each knee was looked for and what was found, with its confidence; the limit's arithmetic."""
    with st.expander(t("load.how"), icon=":material/calculate:"):
        st.markdown(t("load.how_text"))
        for name in ("latency", "offered", "memory"):
            knee = result["knees"][name]
            sure = "" if knee.get("confidence") is None else t("load.sure", share=f"{knee['confidence']:.0%}")
            st.markdown(f"**{t(f'load.knee_{name}')}** {escape(translated(knee['reason']))} {sure}")
        steps: Sequence[Mapping[str, Any]] = result["knees"]["latency"].get("steps") or []
        if steps:
            rows = [
                {t("load.col_from"): f"{one['from']:g}", t("load.col_to"): f"{one['to']:g}",
                 t("load.col_slope"): escape(f"{one['slope']:.2f} [{one['ci95'][0]:.2f}, {one['ci95'][1]:.2f}]")}
                for one in steps
            ]  # fmt: skip
            st.table(pd.DataFrame(rows), hide_index=True)
        line = result["knees"]["latency"].get("segmented")
        if line:
            low, high = (number(end) for end in line["ci95"])
            st.markdown(escape(t("load.segmented", load=number(line["load"]), low=low, high=high)))
        formula = (result["limits"] or {}).get("formula")
        if formula:
            st.markdown(f"{badge('computed')} `{translated(formula)}`")


def _export(run: Run, result: Mapping[str, Any]) -> None:
    st.markdown(f"## {t('result.export')}")
    st.caption(t("result.export_caption"))
    report_files(run)
    files(f"trilemma-{run.id}", result, table(result))
    st.code(sweep_command(run.spec), language="shell", wrap_lines=True)
    link()
