"""A climbed ladder: what came of it first, then every step with its reasons, the whole, and the return on effort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components.calculator import files, link
from app.components.section import escape, section_head
from app.components.stored_job import resume_button
from app.components.warned import warned
from app.state import badge, language, t, translated
from experiments.playbook.words import Says
from experiments.playbook_view import command, curve_rows, return_rows, settings_line, table_of
from experiments.store import Run

Row = Mapping[str, Any]
COLOURS = {"adopted": "green", "rolled back": "orange", "undecided": "gray", "already there": "gray",
           "can't run here": "gray"}  # fmt: skip
CURVE_COLUMNS = ("curve", "before", "after", "change", "interval", "verdict")
RETURN_COLUMNS = ("place", "step", "outcome", "measured", "kept", "effort", "return", "rank")


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    says = Says(language())
    _verdict(run, result, says)
    st.markdown(f"## {t('playbook.step_by_step')} {badge('measured')}")
    st.caption(t("playbook.rule"))
    for place, row in enumerate(result["steps"], start=1):
        _step(place, row, says)
    _whole(result, says)
    _returns(result, says)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"playbook.{kind}"))
    st.markdown(f"## {t('result.export')}")
    files(f"ladder-{run.id}", result, table_of(result))
    link()


def _verdict(run: Run, result: Row, says: Says) -> None:
    with st.container(border=True, key="verdict"):
        st.markdown(badge("measured"))
        with st.container(key="verdict_sentence"):
            st.markdown(escape(says.headline(result)))
        for line in (says.order(result), *says.next(result)):
            st.caption(escape(line))
        st.caption(escape(t("playbook.basis", start=settings_line(result["start"]) or says("defaults"),
                            slo=result["slo"] or says("no_objectives"), repeats=result["repeats"])))  # fmt: skip
        if result["changed"]:
            st.caption(t("playbook.take_along"))
            st.code(command(result["end"]), language="shell", wrap_lines=True)
    if result["cancelled"]:
        st.info(t("playbook.part"))
        resume_button("playbook", run, t("playbook.resume"))
    warned(result["warnings"])


def _step(place: int, row: Row, says: Says) -> None:
    with st.container(border=True):
        mark = f":{COLOURS[row['outcome']]}-badge[{escape(says.outcome(row['outcome']))}]"
        st.markdown(f"**{place}. {escape(says.step(row['name']))}** {mark}")
        if row["changes"]:
            st.caption(escape(says.changes(row)))
        for reason in says.reasons(row):
            st.markdown(escape(translated(reason)))
        if row["simulate"]:
            st.markdown(f"{badge('simulated')} {escape(t('playbook.simulate'))}")
            st.code(row["simulate"], language="shell", wrap_lines=True)
        if row["comparison"]:
            with st.expander(t("playbook.curves", repeats=row["comparison"]["repeats"]), type="compact"):
                st.table(_curves(row["comparison"]["curves"], says), hide_index=True)
        trap = says.trap(row["name"])
        if trap:
            st.caption(t("playbook.trap_of", trap=escape(trap)))


def _whole(result: Row, says: Says) -> None:
    overall = result["overall"]
    if overall is None:
        return
    with st.container(border=True):
        frame = _curves(overall["comparison"]["curves"], says)
        section_head(f"{t('playbook.whole')} {badge('measured')}", t("playbook.whole_caption"), frame, "whole")
        st.table(frame, hide_index=True)


def _curves(curves: Sequence[Row], says: Says) -> pd.DataFrame:
    columns = [t(f"playbook.col_{name}") for name in CURVE_COLUMNS]
    return pd.DataFrame(curve_rows(curves, says), columns=columns)


def _returns(result: Row, says: Says) -> None:
    if not result["returns"]:
        return
    with st.container(border=True):
        columns = [t(f"playbook.col_{name}") for name in RETURN_COLUMNS]
        frame = pd.DataFrame(return_rows(result, says), columns=columns)
        caption = t("playbook.returns_caption", curve=says.curve(result["aim"]))
        section_head(f"{t('playbook.returns')} {badge('computed')}", caption, frame, "returns")
        st.table(frame, hide_index=True)
        st.caption(f"{badge('assumed')} {t('playbook.hours')}")
