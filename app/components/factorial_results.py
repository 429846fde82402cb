"""A finished 2 x 2 experiment: what it says in words, the interaction's picture, and every effect as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import interaction_chart
from app.components.calculator import link
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.state import badge, draw, language, mode, t, translated, words
from experiments.report import reading_sentence
from experiments.report.factorial import EFFECTS, effect_name, ordered_readings
from experiments.report.verdict import ORDER
from experiments.report.words import Words, interval, percent, signed_percent
from experiments.store import Run

COLOURS = {"better": "green", "worse": "orange", "no difference": "gray", "inconclusive": "gray"}
PLOTTED = "output_tokens_per_s"


def results(run: Run) -> None:
    """Draw everything below the setup for a run that has a result."""
    result = run.result or {}
    _words(result)
    _picture(result)
    _effects(result)
    st.markdown(f"## {t('result.export')}")
    report_files(run)
    link()


def _words(result: Mapping[str, Any]) -> None:
    with st.container(border=True, key="verdict"):
        st.markdown(f"## {t('f_readings')} {badge('measured')}")
        for reading in ordered_readings(result):
            colour = COLOURS[reading["verdict"]]
            mark = f":{colour}-badge[{t(reading['verdict'])}]"
            st.markdown(f"{mark} {escape(reading_sentence(result, reading, language()))}")
        st.caption(t("f_basis", repeats=result["repeats"], alpha=f"{result['alpha']:g}"))
        if result.get("cancelled"):
            st.caption(t("cancelled"))
        for warning in result["warnings"]:
            st.caption(f":orange[▲] {escape(translated(warning))}")


def _picture(result: Mapping[str, Any]) -> None:
    first, second = result["factors"]
    arms = [
        {
            "first": f"{first['variable']}={arm['values'][first['variable']]}",
            "second": f"{second['variable']}={arm['values'][second['variable']]}",
            "is_candidate": place >= 2,
            "value": arm["metrics"][PLOTTED],
        }
        for place, arm in enumerate(result["arms"])
    ]
    if any(arm["value"] is None for arm in arms):
        return
    curve = next(curve for curve in result["effects"]["interaction"] if curve["name"] == PLOTTED)
    change = curve["change_pct"]  # of the pairs: the means of the arms alone would put the product elsewhere
    product = None if change is None else arms[-1]["value"] / (1 + change / 100)
    frame = pd.DataFrame(arms)
    with st.container(border=True):
        title = t("comma").join([t(PLOTTED), t(f"unit_{PLOTTED}")])
        section_head(f"{title} {badge('measured')}", t("f_plot"), frame, "interaction")
        draw(interaction_chart(arms, product, mode(), words("chart.")), t("alt.interaction"))


def _effects(result: Mapping[str, Any]) -> None:
    with st.container(border=True):
        st.markdown(f"## {t('f_effects')} {badge('computed')}")
        st.caption(t("f_how"))
        texts = Words(language())
        for effect in reversed(EFFECTS):
            curves = sorted(result["effects"][effect], key=lambda curve: ORDER.index(curve["name"]))
            st.markdown(f"**{escape(effect_name(effect, result, texts))}**")
            st.dataframe(pd.DataFrame([_row(curve) for curve in curves]), hide_index=True)


def _row(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {
        t("col_curve"): t(curve["name"]),
        t("col_change"): signed_percent(curve["change_pct"]),
        t("col_interval"): interval(curve["ci95"]),
        t("col_floor"): percent(curve["noise_floor_pct"]),
        t("col_detectable"): percent(curve["min_detectable_pct"]),
        t("col_verdict"): t(curve["verdict"]),
    }
