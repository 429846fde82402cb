"""The result of a profile: what the step consists of, launches and time by operator, why and trap, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import operators_chart
from app.components.calculator import files, link
from app.components.operators_words import arm_name, count, milliseconds, operator_name, step_name
from app.components.report_files import report_files
from app.components.section import escape, section_head
from app.state import badge, draw, mode, t, translated, words
from experiments.operators_view import (
    ArmFigures,
    OperatorRow,
    arm_figures,
    flat_rows,
    operator_rows,
    profile_command,
    shown_rows,
)
from experiments.report.words import MISSING, interval, percent, signed_percent
from experiments.store import Run


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    arms, rows = arm_figures(result), operator_rows(result)
    names = [escape(arm_name(result, arm.value)) for arm in arms]
    _verdict(result, arms, names, rows)
    _whole(result, arms)
    _operators(result, arms, rows)
    _why(result)
    st.markdown(f"## {t('result.export')}")
    st.caption(t("result.export_caption"))
    report_files(run)
    files(f"trilemma-{run.id}", result, flat_rows(result))
    st.code(profile_command(run.spec), language="shell", wrap_lines=True)
    link()


def _verdict(
    result: Mapping[str, Any], arms: Sequence[ArmFigures], names: Sequence[str], rows: Sequence[OperatorRow]
) -> None:
    """In words: the step alone, or what each value changes of launches and time."""
    with st.container(border=True, key="verdict"):
        st.markdown(badge("measured"))
        base, top = arms[0], rows[0] if rows else None
        figures = {
            "step": step_name(result["step"]["text"]),
            "launches": count(base.launches),
            "calls": count(base.host_calls),
            "time": milliseconds(base.step_s),
            "operator": operator_name(top) if top else MISSING,
            "share": percent(100 * (top.shares[0] or 0)) if top else MISSING,
        }
        with st.container(key="verdict_sentence"):
            if not result["changes"]:
                st.markdown(escape(t("prof.sentence_alone", **figures)))
            for name, arm, change in zip(names[1:], arms[1:], result["changes"], strict=True):
                st.markdown(_sentence(name, base, arm, change))
        cpu = result["environment"]["cpu"]
        st.caption(t("prof.basis", repeats=result["repeats"], cpu=cpu, step=figures["step"]))
        st.caption(" ".join(t(f"prof.counts_{_counts(arm)}") for arm in _by_counts(arms)))
    for warning in result["warnings"]:
        st.warning(escape(translated(warning)))


def _sentence(name: str, base: ArmFigures, arm: ArmFigures, change: Mapping[str, Any]) -> str:
    """Launches first, since they are certain; then the time with its interval and verdict."""
    key = "prof.launches_other" if change["launches"] is None else "prof.launches_change"
    if change["launches"] == 0:
        key = "prof.calls_change" if change["host_calls"] else "prof.launches_same"
    counted = t(
        key, launches=count(arm.launches), before=count(base.launches), calls=count(arm.host_calls),
        calls_before=count(base.host_calls),
    )  # fmt: skip
    curve = change["step_s"]
    key = f"prof.time_{curve['verdict'].replace(' ', '_')}"
    time = t(key, time=milliseconds(arm.step_s), before=milliseconds(base.step_s),
             change=signed_percent(curve["change_pct"]), interval=interval(curve["ci95"]))  # fmt: skip
    then = f"{_mark(curve['verdict'])}{escape(time)}"
    return t("two_sentences", first=f"**{name}**{t('colon')}{escape(counted)}", then=then)


def _mark(verdict: str) -> str:
    """The sign before a decided sentence: not the colour alone."""
    return {"better": ":green[▲] ", "worse": ":orange[▼] "}.get(verdict, "")


def _counts(arm: ArmFigures) -> str:
    return arm.counts.partition(" ")[0].lower()


def _by_counts(arms: Sequence[ArmFigures]) -> list[ArmFigures]:
    return list({arm.counts: arm for arm in arms}.values())


def _whole(result: Mapping[str, Any], arms: Sequence[ArmFigures]) -> None:
    """The whole step in every arm."""
    with st.container(border=True):
        rows = [
            {
                **({t("prof.col_arm"): arm_name(result, arm.value)} if result["variable"] else {}),
                t("prof.col_launches"): count(arm.launches),
                t("prof.col_calls"): count(arm.host_calls),
                t("prof.col_step"): milliseconds(arm.step_s),
                t("prof.col_operators"): milliseconds(arm.operators_s),
                t("prof.col_outside"): milliseconds(arm.outside_s),
            }
            for arm in arms
        ]
        frame = pd.DataFrame([vars(arm) for arm in arms])
        section_head(f"{t('prof.whole')} {badge('measured')}", t("prof.whole_caption"), frame, "step")
        st.table(pd.DataFrame(rows).map(escape), hide_index=True)
        if any(arm.outside_s is None for arm in arms):
            st.caption(t("prof.no_outside"))


def _operators(result: Mapping[str, Any], arms: Sequence[ArmFigures], rows: Sequence[OperatorRow]) -> None:
    """Two charts in the same order of operators: time and launches."""
    with st.container(border=True):
        frame = pd.DataFrame(flat_rows(result))
        section_head(f"{t('prof.operators')} {badge('measured')}", t("prof.operators_caption"), frame, "operators")
        shown = [
            {
                "name": operator_name(row), "full": operator_name(row) if row.is_rest else row.name,
                "launches": row.launches, "seconds": row.seconds, "shares": row.shares,
            }
            for row in shown_rows(rows)
        ]  # fmt: skip
        names = [arm_name(result, arm.value) or arm.value for arm in arms]
        for column, of in zip(st.columns(2), ("seconds", "launches"), strict=True):
            with column:
                st.markdown(f"**{t(f'prof.{of}')}**")
                draw(operators_chart(shown, names, of, mode(), words("chart.")), t(f"alt.operators_{of}"))


def _why(result: Mapping[str, Any]) -> None:
    """The explanation and the trap, of what was varied too."""
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"prof.{kind}"))
            if result["variable"] is not None:
                st.markdown(f"**{t('var.' + result['variable'])}**  \n{t(kind + '.' + result['variable'])}")
