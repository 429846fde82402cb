"""The sections of the Cost page. They show what experiments.cost_view computed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.charts import levers_chart
from app.components.calculator import files, link, same_model
from app.components.section import escape, section_head
from app.navigation import page_of
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.cost_view import CostSetting, CostView
from experiments.report.words import MISSING, number, signed_percent


def money(value: float | None) -> str:
    """An amount, whole from 100 up."""
    return MISSING if value is None else f"{value:,.0f}" if value >= 100 else number(value, 3)


def plain(value: float) -> str:
    """A number as it was typed, never in powers of ten above 1."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:g}"


def verdict(view: CostView, setting: CostSetting, card: str) -> None:
    """Cards and money, in words, and the largest saving."""
    report = view.report
    served = report["month"] is not None
    with st.container(border=True, key="verdict"):
        colour, key = ("gray", "cost.bound_badge") if served else ("orange", "cost.not_served")
        if served and setting.source != "bound":
            key = f"cost.{setting.source}_badge"
        label = badge(report["provenance"]) if served else badge("computed")
        st.markdown(f":{colour}-badge[{t(key)}] {label} {badge('assumed')}")
        with st.container(key="verdict_sentence"):
            st.markdown(_sentence(view, setting, card) if served else t("cost.sentence_not_served", card=card))
        st.caption(escape(translated(report["how"])) if not served else _caption(view, setting))


def _sentence(view: CostView, setting: CostSetting, card: str) -> str:
    month = view.report["month"]
    numbers = {"cards": f"{month['cards']:,}", "card": card, "cost": money(month["cost"])}
    key = "cost.sentence" if setting.source != "run" else "cost.sentence_run"
    text = t(key, rate=plain(setting.requests_per_s), tokens=f"{setting.output_tokens:,}", **numbers)
    best, together = view.best, view.rows[-1]
    if best is not None:
        text = sentences([text, t("cost.sentence_best", lever=_lever(best), change=signed_percent(best["change_pct"]))])
    if together["name"] == "together" and together["whole_cost"] is not None:
        every = {"cards": f"{together['cards']:,}", "cost": money(together["whole_cost"])}
        text = sentences([text, t("cost.sentence_together", change=signed_percent(together["change_pct"]), **every)])
    return text


def _caption(view: CostView, setting: CostSetting) -> str:
    rate = number(view.report["throughput"]["tokens_per_s_per_device"], 4)
    return t(f"cost.caption_{setting.source}", rate=rate, price=f"{setting.price_per_device_hour:g}")


def _lever(row: dict[str, Any]) -> str:
    """A lever and its value: "prefix cache 50 %", "weights in W8A8"."""
    value = row["value"]
    if isinstance(value, float):
        shown = f"{100 * value:.0f} %"
    else:
        shown = f"{value:,}" if isinstance(value, int) else str(value).upper()
    return t(f"lever.{row['name']}", value=shown)


def levers(view: CostView) -> None:
    """What the work costs as it is, with each lever alone, and with all."""
    with st.container(border=True):
        table = [
            {
                t("chart.lever"): _lever(row),
                t("cost.devices"): None if row["devices"] is None else round(row["devices"], 3),
                t("chart.month_cost"): row["cost"],
                t("chart.change"): signed_percent(row["change_pct"]),
                t("cost.cards"): row["cards"],
                t("cost.whole_cost"): row["whole_cost"],
                t("chart.how"): row["how"],
            }
            for row in view.rows
        ]
        origin = badge(view.rows[-1]["provenance"])
        section_head(f"{t('cost.levers')} {origin}", t("cost.levers_caption"), pd.DataFrame(table), "levers")
        rows = [{**row, "name": _lever(row), "is_base": row["name"] == "base"} for row in view.rows]
        draw(levers_chart(rows, mode(), words("chart.")), t("alt.levers"))
        found = view.report["levers"]
        if len(found["each"]) > 1 and found["sum_of_each_pct"] is not None:
            numbers = {"sum": number(found["sum_of_each_pct"]), "together": number(found["together"]["saved_pct"])}
            st.caption(t("cost.not_a_sum", **numbers))
        with st.expander(t("cost.levers_how")):
            for row in view.rows:
                st.markdown(f"**{_lever(row)}** {badge(row['provenance'])}  \n{escape(translated(row['how']))}")


def arithmetic(view: CostView, setting: CostSetting) -> None:
    """The month and one request, step by step."""
    month, request = view.report["month"], view.report["request"]
    if month is None:
        return
    left, right = st.columns(2, border=True)
    with left:
        st.markdown(f"## {t('cost.month')} {badge(view.report['provenance'])}")
        for name, text in _month_steps(view, setting):
            st.markdown(f"**{name}**  \n{escape(text)}")
    with right:
        st.markdown(f"## {t('cost.request')} {badge(view.report['provenance'])}")
        st.caption(t("cost.request_caption"))
        st.markdown(escape(translated(request["how"])))
        st.table(
            {
                "": [t("cost.per_request"), t("cost.per_million"), t("cost.requests_month"), t("cost.tokens_month")],
                " ": [
                    number(month["cost_per_request"], 4),
                    number(month["cost_per_million_output_tokens"], 4),
                    f"{month['requests']:,.0f}",
                    f"{month['output_tokens']:,.0f}",
                ],
            },
            hide_index=True,
            hide_header=True,
        )


def _month_steps(view: CostView, setting: CostSetting) -> list[tuple[str, str]]:
    month, rate = view.report["month"], view.report["throughput"]["tokens_per_s_per_device"]
    numbers = {
        "rate": plain(setting.requests_per_s),
        "tokens": f"{setting.output_tokens:,}",
        "per_s": f"{month['output_tokens_per_s']:,.6g}",
        "each": f"{rate:,.5g}",
        "ceiling": f"{setting.utilisation:g}",
        "exact": f"{view.rows[0]['devices']:,.4g}",
        "cards": f"{month['cards']:,}",
        "price": f"{setting.price_per_device_hour:g}",
        "cost": money(month["cost"]),
        "busy": f"{100 * month['utilisation']:.0f}",
    }
    names = ("tokens", "cards", "cost", "busy")
    return [(t(f"cost.step_{name}"), t(f"cost.step_{name}_text", **numbers)) for name in names]


def why_and_trap() -> None:
    """Three ways to pay less, and what the arithmetic leaves out."""
    left, right = st.columns(2, border=True)
    with left:
        st.markdown(f"## {t('cost.why_title')}")
        st.markdown(t("cost.why"))
    with right:
        st.markdown(f"## {t('ledger.trap')}")
        st.markdown(t("cost.trap_bound"))
        st.markdown(t("cost.trap_levers"))


def export(view: CostView, command: str) -> None:
    """The figures as files, the command line and the link."""
    st.markdown(f"## {t('result.export')}")
    st.caption(t("ledger.export_caption"))
    files("cost", view.report, view.rows)
    st.page_link(
        page_of("roofline"), label=t("cost.to_roofline"), icon=":material/show_chart:", query_params=same_model()
    )
    st.code(command, language="shell", wrap_lines=True)
    link()
