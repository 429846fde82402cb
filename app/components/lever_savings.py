"""The Cost page's section of measured levers: what each was seen to save, its quality, and what all save together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import savings_chart
from app.components.inputs import choice
from app.components.section import escape, section_head
from app.state import badge, draw, mode, sentences, store, t, words, workload_name
from experiments.levers_view import largest, lever_rows, losing_quality, shown_runs
from experiments.report.reproduce import command_of
from experiments.report.words import MISSING, number, signed_percent
from experiments.store import Run

LISTED = 50
DEFAULT_COMMAND = "trilemma levers"


def lever_savings(page: str) -> None:
    """Draw it for a stored experiment; without one, how to make one."""
    runs = shown_runs(store().list_runs(kind="levers", limit=LISTED))
    with st.container(border=True):
        if not runs:
            st.markdown(f"## {t('savings.title')}")
            st.markdown(t("savings.none"))
            st.code(DEFAULT_COMMAND, language="shell")
            return
        asked = choice(
            page, "levers_run", t("savings.run"), list(runs), next(iter(runs)), lambda one: _label(runs[one])
        )
        _run(runs[asked])


def _label(run: Run) -> str:
    result = run.result or {}
    where = workload_name(result["workload"]["name"])
    return f"{where} · {t(result['provenance'])} · {run.created_at[:16].replace('T', ' ')} UTC · {run.id}"


def _run(run: Run) -> None:
    result: Mapping[str, Any] = run.result or {}
    rows = lever_rows(result)
    section_head(
        f"{t('savings.title')} {badge(result['provenance'])} {badge('assumed')}",
        t("savings.caption", repeats=result["repeats"], price=f"{result['price_per_device_hour']:g}"),
        pd.DataFrame([_table_row(row) for row in rows]),
        "lever-savings",
    )
    st.markdown(escape(_sentence(result)))
    shown = [{**row, "name": lever_name(row["name"]), "verdict": t(row["verdict"])} for row in rows]
    chart = savings_chart(shown, mode(), words("chart."))
    if chart is not None:
        draw(chart, t("alt.savings"))
    if lost := losing_quality(result):
        st.markdown(f":orange[▲] {t('savings.quality_lost', levers=', '.join(map(lever_name, lost)))}")
    for note in filter(None, (_together(result), t("savings.quality_how"))):
        st.caption(escape(note))
    st.code(str(command_of("levers", run.spec)), language="shell", wrap_lines=True)


def lever_name(name: str) -> str:
    """A lever in the reader's language."""
    return t(f"savings.{name}")


def _sentence(result: Mapping[str, Any]) -> str:
    best = largest(result)
    if best is None:
        return t("savings.no_saving")
    low, high = best["ends"] or (None, None)
    ends = "" if low is None else f" [{number(low)}, {number(high)}]"
    return t("savings.best", lever=lever_name(best["name"]), saved=f"{number(best['saved'])} %{ends}")


def _together(result: Mapping[str, Any]) -> str:
    """How the levers act on each other."""
    found = result["attribution"]
    if found is None or found["together_pct"] is None:
        return ""
    numbers = {"together": number(found["together_pct"]), "sum": number(found["sum_of_each_pct"]),
               "product": number(found["product_of_each_pct"])}  # fmt: skip
    return sentences([t("savings.together_text", **numbers), t(f"savings.{found['interaction']['verdict']}")])


def _table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        t("savings.col_lever"): lever_name(row["name"]),
        t("savings.col_from"): MISSING if row["from"] is None else str(row["from"]),
        t("savings.col_to"): MISSING if row["to"] is None else str(row["to"]),
        t("savings.col_saved"): row["saved"],
        t("savings.col_low"): row["ends"] and row["ends"][0],
        t("savings.col_high"): row["ends"] and row["ends"][1],
        t("savings.col_verdict"): t(row["verdict"]),
        t("savings.col_quality"): MISSING if row["quality"] is None else t(row["quality"]),
        t("savings.col_quality_change"): signed_percent(row["quality_change_pct"]),
        t("savings.col_same"): row["same_answers_share"],
        t("savings.col_hits"): row["hit_rate"],
        t("savings.col_escalated"): row["escalated_share"],
        t("savings.col_kept"): row["kept_share"],
        t("savings.col_million"): row["per_million"],
    }
