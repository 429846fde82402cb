"""The sections of the Roofline page. They show what experiments.roofline_view computed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.charts import crossover_chart, roofline_chart, time_share_chart, time_unit
from app.charts.roofline import SELECTION
from app.components.calculator import files, link, same_model
from app.components.section import escape, section_head
from app.navigation import page_of
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.report.words import MISSING, number
from experiments.roofline_view import RooflineView, StepSetting, bars_of, roofline_rows

TERA, GIGA = 1e12, 1e9


def seconds(value: float) -> str:
    """A time with the unit that suits it."""
    scale, unit = time_unit(value)
    return f"{number(value * scale)} {unit}"


def verdict(view: RooflineView, setting: StepSetting) -> None:
    """What limits each phase, in words; and that the batch does not fit, where it does not."""
    with st.container(border=True, key="verdict"):
        marks = [_bound_badge(phase, report["totals"]["bound"]) for phase, report in view.reports.items()]
        st.markdown(f"{' '.join(marks)} {badge('computed')}")
        with st.container(key="verdict_sentence"):
            st.markdown(sentences(_phase_sentence(phase, report) for phase, report in view.reports.items()))
        st.caption(_crossover_line(view))
        if view.held is not None and setting.batch > view.held:
            held, batch, tokens = (f"{value:,}" for value in (view.held, setting.batch, setting.seq_len))
            st.caption(t("roofline.not_held", held=held, batch=batch, tokens=tokens))


def _bound_badge(phase: str, bound: str) -> str:
    return f":gray-badge[{t(f'roofline.phase_{phase}')}{t('colon')}{t(f'bound.{bound}')}]"


def _phase_sentence(phase: str, report: dict[str, Any]) -> str:
    totals = report["totals"]
    share = totals["time_by_bound_s"][totals["bound"]] / totals["time_s"] if totals["time_s"] else 0.0
    numbers = {
        "time": seconds(totals["time_s"]),
        "share": f"{100 * share:.0f}",
        "rate": number(totals["tokens_per_s"]),
        "bytes": number(totals["bytes"] / GIGA),
        "flops": number(totals["flops"] / TERA),
    }
    return t(f"roofline.sentence_{phase}_{totals['bound']}", **numbers)


def _crossover_line(view: RooflineView) -> str:
    if view.crossover_batch is None:
        line = t("roofline.no_crossover", ridge=number(view.ridge))
    else:
        line = t("roofline.crossover_line", batch=f"{view.crossover_batch:,}", ridge=number(view.ridge))
    return sentences([line, t("roofline.bound_only")])


def roof(view: RooflineView) -> None:
    """The chart, and a card of the operator that is clicked or chosen."""
    wide, narrow = st.columns([1.75, 1])
    with wide, st.container(border=True):
        title = f"{t('roofline.roof')} {badge('computed')}"
        section_head(title, t("roofline.roof_caption"), pd.DataFrame(roofline_rows(view)), "roofline")
        key = _chosen(view)
        roofs = [{**item, "name": _roof_name(item)} for item in view.roofs]
        points = [
            {**point, "name": translated(point["name"]), "bound": t(f"bound.{point['bound']}")} for point in view.points
        ]
        chart = roofline_chart(points, roofs, key, mode(), words("chart."))
        draw(chart, t("alt.roofline"), key="roof-chart", on_select=_take_click, selection_mode=SELECTION)
    with narrow, st.container(border=True):
        _card(view)


def _roof_name(item: dict[str, Any]) -> str:
    return t(
        "roofline.roof_name",
        dtype=item["dtype"].upper(),
        rate=number(item["flops_per_s"] / TERA),
        ridge=number(item["ridge"]),
    )


def _chosen(view: RooflineView) -> str:
    keys = [point["key"] for point in view.points]
    if st.session_state.get("roof-operator") not in keys:
        st.session_state["roof-operator"] = max(view.points, key=lambda point: point["share"])["key"]
    return st.session_state["roof-operator"]


def _take_click() -> None:
    """A click on a mark chooses its operator; a click beside one changes nothing."""
    picked = st.session_state["roof-chart"]["selection"].get(SELECTION) or []
    if picked:
        st.session_state["roof-operator"] = picked[0]["key"]


def _card(view: RooflineView) -> None:
    """FLOPs, bytes, intensity, bound and time of one operator, with the arithmetic."""
    st.markdown(f"## {t('roofline.operator')} {badge('computed')}")
    st.selectbox(t("roofline.choose"), [point["key"] for point in view.points], key="roof-operator",
                 format_func=_operator_label, label_visibility="collapsed")  # fmt: skip
    point = next(point for point in view.points if point["key"] == st.session_state["roof-operator"])
    rows = {
        t("roofline.layers"): f"{point['count']:,}",
        t("roofline.flops"): f"{number(point['flops'] / GIGA)} {t('unit.gflop')}",
        t("roofline.bytes"): f"{number(point['bytes'] / GIGA)} {t('unit.gb')}",
        t("roofline.intensity"): MISSING
        if point["intensity"] is None
        else f"{number(point['intensity'])} {t('unit.flop_byte')}",
        t("roofline.ridge"): f"{number(point['ridge'])} {t('unit.flop_byte')}",
        t("roofline.bound"): t(f"bound.{point['bound']}"),
        t("roofline.time"): f"{seconds(point['time_s'])} · {100 * point['share']:.1f} %",
    }
    st.table({"": list(rows), " ": list(rows.values())}, hide_index=True, hide_header=True)
    st.caption(t("roofline.formula"))
    st.markdown("  \n".join(escape(translated(step.strip())) for step in point["how"].split(";")))


def _operator_label(key: str) -> str:
    phase, _, name = key.partition(": ")
    return f"{translated(name)} · {t(f'roofline.phase_{phase}')}"


def times(view: RooflineView) -> None:
    """Which operators the step's time goes to, phase by phase."""
    with st.container(border=True):
        rows = [
            {
                t("roofline.phase"): t(f"roofline.phase_{point['phase']}"),
                t("roofline.operator"): translated(point["name"]),
                t("roofline.time_us"): point["time_s"] * 1e6,
                t("roofline.share"): point["share"],
                t("roofline.bound"): t("bound." + point["bound"]),
            }
            for point in view.points
        ]
        section_head(
            f"{t('roofline.times')} {badge('computed')}", t("roofline.times_caption"), pd.DataFrame(rows), "times"
        )
        for column, (phase, report) in zip(st.columns(len(view.reports)), view.reports.items(), strict=True):
            with column:
                st.markdown(f"**{t(f'roofline.phase_{phase}')}** {seconds(report['totals']['time_s'])}")
                bars = [_bar(row) for row in bars_of(view.points, phase)]
                draw(time_share_chart(bars, mode(), words("chart.")), t("alt.times"))


def _bar(row: dict[str, Any]) -> dict[str, Any]:
    if row["key"]:
        return {**row, "name": translated(row["name"]), "bound": t(f"bound.{row['bound']}")}
    return {**row, "name": t("roofline.others", count=row["count"]), "bound": MISSING}


def crossover(view: RooflineView, setting: StepSetting) -> None:
    """Operations a byte over the batch: the linear layers climb to the ridge, attention does not."""
    with st.container(border=True):
        rows = [
            {t("roofline.kind"): t(f"chart.kind_{line['kind']}"), **point}
            for line in view.lines
            for point in line["points"]
        ]
        caption = t("roofline.crossover_caption", tokens=f"{setting.seq_len:,}")
        section_head(f"{t('roofline.crossover')} {badge('computed')}", caption, pd.DataFrame(rows), "crossover")
        chart = crossover_chart(view.lines, view.ridge, view.crossover_batch, mode(), words("chart."))
        draw(chart, t("alt.crossover"))
        st.caption(escape(translated(view.crossover_how)))


def why_and_trap(view: RooflineView) -> None:
    """Why batching helps the linear layers, and why it does not help attention."""
    left, right = st.columns(2, border=True)
    with left:
        st.markdown(f"## {t('result.why')}")
        st.markdown(t("roofline.why"))
    with right:
        st.markdown(f"## {t('ledger.trap')}")
        if view.attention_intensity is None:
            st.markdown(t("roofline.trap_none"))
        else:
            key = "roofline.trap_latent" if view.latent else "roofline.trap_heads"
            st.markdown(t(key, intensity=number(view.attention_intensity), ridge=number(view.ridge)))
        st.markdown(t("roofline.trap_bound"))


def table(view: RooflineView) -> None:
    """Every operator with its numbers."""
    with st.expander(t("roofline.table", count=len(view.points))):
        rows = [
            {
                t("roofline.phase"): t(f"roofline.phase_{point['phase']}"),
                t("roofline.operator"): translated(point["name"]),
                t("roofline.layers"): point["count"],
                t("roofline.gflop"): point["flops"] / GIGA,
                t("roofline.weight_gb"): point["weight_bytes"] / GIGA,
                t("roofline.kv_gb"): point["kv_bytes"] / GIGA,
                t("roofline.activation_gb"): point["activation_bytes"] / GIGA,
                t("roofline.intensity_column"): point["intensity"],
                t("roofline.bound"): t("bound." + point["bound"]),
                t("roofline.time_us"): point["time_s"] * 1e6,
            }
            for point in view.points
        ]
        st.dataframe(pd.DataFrame(rows), hide_index=True)


def export(view: RooflineView) -> None:
    """The figures as files, and the link."""
    st.markdown(f"## {t('result.export')}")
    st.caption(t("roofline.export_caption"))
    files("roofline", view.reports, roofline_rows(view))
    st.page_link(
        page_of("ledger"), label=t("roofline.to_ledger"), icon=":material/table_rows:", query_params=same_model()
    )
    link()
