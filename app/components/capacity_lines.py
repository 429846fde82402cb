"""The Load page's advice: water lines of an instance and of a fleet, what a month costs, where most is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.components.inputs import decimal
from app.components.lever_savings import lever_name
from app.components.section import escape
from app.state import badge, store, t, translated, workload_name
from experiments.capacity import OVER_CEILING
from experiments.capacity_advice import advise_capacity
from experiments.capacity_ledger import ledger_savings
from experiments.report.words import number

PAGE = "load"
LINES = ("scale_out_rps", "alarm_rps", "refuse_rps")
LISTED = 50


def capacity_lines(result: Mapping[str, Any]) -> None:
    """Draw it for a sweep over loads; a sweep of a variable has no limit, and nothing is drawn."""
    limits = result["limits"]
    if limits is None:
        return
    with st.container(border=True):
        st.markdown(f"## {t('capacity.title')} {badge('computed')} {badge('assumed')}")
        st.caption(t("capacity.caption"))
        left, right = st.columns(2)
        with left:
            start = limits["demand_rps"] or 0.0
            demand = decimal(PAGE, "fleet_demand", t("capacity.demand"), start, 0.0, 1e6, format="%g")
        with right:
            price = decimal(
                PAGE, "fleet_price", t("capacity.price"), float(result["price_per_device_hour"]), 0.000001, 1e6,
                format="%g",
            )  # fmt: skip
        runs = store().list_runs(kind="levers", limit=LISTED)
        asked = {**result, "limits": {**limits, "demand_rps": demand or None}}
        advice = advise_capacity(asked, runs, price_per_device_hour=price, otherwise=ledger_savings)
        if advice["instance"]["refuse_rps"] is None:
            st.markdown(t("capacity.no_lines", reason=escape(translated(advice["reason"]))))
            return
        _lines(advice)
        if limits["outcome"] == OVER_CEILING:
            st.caption(t("capacity.at_least"))
        _fleet(advice)
        _savings(advice)


def _lines(advice: Mapping[str, Any]) -> None:
    """Three lines, each with what is done there."""
    fleet = advice["fleet"]
    for column, name in zip(st.columns(3), LINES, strict=True):
        with column:
            st.metric(t(f"capacity.{name}"), t("capacity.rate", value=number(advice["instance"][name])))
            whole = "" if fleet is None else f" {t('capacity.of_fleet', value=number(fleet[name]))}"
            st.caption(f"{t(f'capacity.{name}_what')}{whole}")


def _fleet(advice: Mapping[str, Any]) -> None:
    fleet, month = advice["fleet"], advice["month"]
    if fleet is None or month is None:
        st.caption(t("capacity.no_demand"))
        return
    numbers = {
        "count": fleet["instances"],
        "demand": f"{fleet['demand_rps']:g}",
        "share": f"{100 * fleet['load_share']:.0f}",
        "cost": f"{month['cost']:,.0f}",
        "million": number(month["cost_per_million_requests"]),
    }
    st.markdown(escape(t("capacity.fleet", **numbers)))
    alone = "capacity.alone" if fleet["instances"] == 1 else "capacity.may_not_fail"
    st.markdown(t("capacity.may_fail" if fleet["one_may_fail"] else alone))
    st.markdown(f"{badge('computed')} `{fleet['formula']}` `{month['formula']}`")


def _savings(advice: Mapping[str, Any]) -> None:
    st.markdown(f"**{t('capacity.savings')}**")
    if not advice["savings"]:
        st.caption(t("capacity.no_savings"))
    for one in advice["savings"]:
        low, high = one["saved_ci95"] or (None, None)
        ends = "" if low is None else f" [{number(low)}, {number(high)}]"
        money = "" if one["saved_per_month"] is None else t("capacity.a_month", money=f"{one['saved_per_month']:,.0f}")
        where = "" if one["same_workload"] else t("capacity.elsewhere", workload=workload_name(one["workload"]))
        source = one["run_id"] or t("capacity.by_ledger")
        quality = t("capacity.quality_unknown") if one["quality"] is None else t(
            "capacity.quality", verdict=t(one["quality"])
        )  # fmt: skip
        saved = f"{lever_name(one['lever'])}{t('colon')}{number(one['saved_pct'])} %{ends}"
        told = f"{saved} {money} {where} · {quality} · {source}"
        st.markdown(f"{badge(one['provenance'])} {escape(told)}")
    if len(advice["savings"]) > 1:
        st.caption(t("capacity.not_summed"))
