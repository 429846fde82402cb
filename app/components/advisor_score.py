"""How often the advisor was right: directions, bands, and two rules that know nothing, over every stored prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.components.section import section_head
from app.state import badge, store, t
from experiments.advisor.record_score import score
from experiments.advisor_view import score_rows
from experiments.report.words import MISSING, number


def score_table() -> None:
    """Draw it; with no outcome yet it says how the first comes about."""
    found = _score(str(store().path), store().count_runs(kind="compare", state="done"))
    with st.container(border=True):
        if not found["comparisons"]:
            st.markdown(f"## {t('advisor.score')}")
            st.caption(t("advisor.no_score"))
            return
        rows = score_rows(found)
        caption = t("advisor.score_caption", comparisons=found["comparisons"], curves=found["curves"],
                    unpredicted=found["unpredicted"], undecided=found["undecided"])  # fmt: skip
        section_head(f"{t('advisor.score')} {badge('measured')}", caption, pd.DataFrame(rows), "score")
        st.table(pd.DataFrame([_row(row) for row in rows]).set_index(t("advisor.col_part")))
        goals = found["goals"]
        low, high = goals["coverage"]
        percents = {"direction": 100 * goals["direction"], "low": 100 * low, "high": 100 * high}
        shown = {name: f"{value:.0f}" for name, value in percents.items()}
        st.caption(t("advisor.goals", points=f"{goals['half_width_points']:g}", **shown))


@st.cache_data(max_entries=2, show_spinner=False)
def _score(path: str, finished: int) -> dict[str, Any]:
    """The score; the store and the number of its finished comparisons key the cache."""
    return score(store())


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        t("advisor.col_part"): _name(row),
        t("advisor.col_direction"): _share(row["direction"], "right"),
        t("advisor.col_in_band"): _share(row["bands"], "covered"),
        t("advisor.col_half"): number(row["half_width"]),
        t("advisor.col_error"): number(row["error"]),
    }


def _name(row: Mapping[str, Any]) -> str:
    part = str(row["part"]).replace(" ", "_")
    if row["group"] == "curve":
        return t(row["part"])
    return t(f"advisor.part_{part}") if row["group"] == "all" else t(f"advisor.{row['group']}_{part}")


def _share(part: Mapping[str, Any], name: str) -> str:
    if not part["of"]:
        return MISSING
    low, high = part["ci95"]
    figures = {"low": f"{100 * low:.0f}", "high": f"{100 * high:.0f}", "percent": f"{100 * part['share']:.0f}"}
    return t("advisor.share", count=part[name], of=part["of"], **figures)
