"""What the advisor says: ranked causes with their evidence, and the one next change with what it should do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import prediction_chart
from app.components.section import escape, section_head
from app.state import badge, draw, mode, t, translated, words
from core_engine.variables import VARIABLES
from experiments.advisor.advice import Advice
from experiments.advisor.diagnose import FOUND, HEALTHY, Diagnosis, how_to_judge
from experiments.advisor.finding import Finding, Missing
from experiments.advisor_view import prediction_rows
from experiments.report.words import MISSING, interval, signed_percent

COLOURS = {FOUND: "orange", HEALTHY: "green"}
EFFORT_COLOURS = {"config": "green", "code": "orange", "architecture": "red"}


def cause_name(cause: str) -> str:
    """A cause as the page calls it."""
    return t(f"advisor.cause_{cause}")


def causes(found: Diagnosis) -> None:
    """The verdict in words, every cause that matches with its evidence, and what would tell more."""
    with st.container(border=True, key="verdict"):
        colour = COLOURS.get(found.verdict, "gray")
        verdict = t(f"advisor.verdict_{_key(found.verdict)}")
        st.markdown(f":{colour}-badge[{verdict}] {badge(found.evidence.provenance)}")
        with st.container(key="verdict_sentence"):
            st.markdown(escape(_sentence(found)))
        for objective in found.unjudged:
            how = translated(how_to_judge(objective))
            st.markdown(escape(t("advisor.unjudged", objective=objective.name, measure=how)))
        st.caption(escape(t("advisor.looked_at", source=translated(found.evidence.source))))
    if found.findings:
        st.markdown(f"## {t('advisor.causes')}")
        st.caption(t("advisor.causes_caption"))
        for place, finding in enumerate(found.findings):
            _cause(finding, first=place == 0)
    if found.missing:
        with st.expander(t("advisor.missing", count=len(found.missing))):
            for one in found.missing:
                _missing(one)


def _key(verdict: str) -> str:
    return verdict.replace(" ", "_")


def _sentence(found: Diagnosis) -> str:
    top = found.top
    if top is not None:
        return t("advisor.sentence_found", cause=cause_name(top.cause), means=t(f"advisor.means_{top.cause}"))
    return t(f"advisor.sentence_{_key(found.verdict)}")


def _cause(finding: Finding, *, first: bool) -> None:
    share = t("advisor.weight", percent=f"{100 * finding.score:.0f}")
    with st.expander(f"{cause_name(finding.cause)} · {share}", expanded=first):
        st.markdown(t(f"advisor.means_{finding.cause}"))
        st.markdown("\n".join(f"- {escape(translated(line.text))}" for line in finding.lines))
        if finding.follows_from is not None:
            st.caption(t("advisor.follows_from", cause=cause_name(finding.follows_from)))
        for bound in finding.bounds:
            said = f"{bound.claim}{t('colon')}{translated(bound.text)}"
            st.caption(f":orange[▲] {escape(said)}")


def _missing(one: Missing) -> None:
    st.markdown(f"**{cause_name(one.cause)}**")
    st.markdown("\n".join(f"- {escape(translated(line))}" for line in one.measures()))


# -- the next change -----------------------------------------------------------------------------------------------


def advice(made: Advice, on_test: Callable[[Advice], None]) -> None:
    """The change, what it is predicted to do, what it takes, what would refute it, and the button that tests it."""
    with st.container(border=True, key="advice"):
        left, right = st.columns([3, 1], vertical_alignment="bottom")
        left.markdown(f"## {t('advisor.next')}")
        left.markdown(f"### {escape(_change(made))}")
        with right:
            st.button(
                t("advisor.test"), type="primary", icon=":material/play_arrow:", width="stretch", key="test",
                disabled=made.test is None, on_click=lambda: on_test(made),
            )  # fmt: skip
        st.markdown(escape(t("advisor.because", cause=cause_name(made.cause), why=translated(made.why))))
        effort = f":{EFFORT_COLOURS[made.effort]}-badge[{t(f'advisor.effort_{made.effort}')}]"
        st.markdown(f"{t('advisor.effort')} {effort}")
        st.markdown(escape(t("advisor.refuted", what=translated(made.refuted_by))))
        if made.no_test is not None:
            st.info(t("advisor.no_test"))
        if made.prediction is not None:
            _prediction(made.prediction.to_json())
        _flags(made)
        if made.passed_over:
            with st.expander(t("advisor.passed_over", count=len(made.passed_over))):
                lines = (f"{one.variable} → {one.to_value}: {translated(one.reason)}" for one in made.passed_over)
                st.markdown("\n".join(f"- {escape(line)}" for line in lines))


def _change(made: Advice) -> str:
    name = t(f"var.{made.variable}") if made.variable in VARIABLES else t(f"advisor.outside_{made.variable}")
    if made.from_value is None and made.to_value is None:
        return name
    before = MISSING if made.from_value is None else made.from_value
    return t("advisor.change", variable=name, before=before, after=made.to_value)


def _prediction(prediction: Mapping[str, Any]) -> None:
    rows = prediction_rows(prediction)
    section_head(t("advisor.predicted"), t("advisor.predicted_caption"), pd.DataFrame(rows), "prediction")
    for note in prediction["notes"]:  # first: what would make a prediction, where there is none
        st.caption(f":orange[▲] {escape(translated(note))}")
    st.table(pd.DataFrame([_row(row) for row in rows]).set_index(t("advisor.col_curve")))
    bands([{**row, "measured_pct": None} for row in rows])


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    label = badge(row["provenance"]) if row["provenance"] else ""
    return {
        t("advisor.col_curve"): f"{t(row['name'])} {label}",
        t("advisor.col_change"): escape(change_text(row["median_pct"], row["band80_pct"], exact=row["exact"])),
        t("advisor.col_call"): MISSING if row["verdict"] is None else t(row["verdict"]),
        t("advisor.col_source"): t(f"advisor.source_{row['source'].replace(' ', '_')}"),
    }


def bands(rows: Sequence[Mapping[str, Any]]) -> None:
    """The chart of predicted bands, with what was measured where it was; nothing where nothing is predicted."""
    named = [{**row, "name": t(row["name"])} for row in rows if row["median_pct"] is not None]
    if named:
        draw(prediction_chart(named, mode(), words("chart.")), t("advisor.chart_alt"))


def change_text(median_pct: float | None, band: Sequence[float] | None, *, exact: bool = False) -> str:
    """+12 % [+5, +20]; the same by construction, or nothing predicted, in words."""
    if exact:
        return t("advisor.exact")
    if median_pct is None:
        return t("advisor.unpredicted")
    return f"{signed_percent(median_pct)} {interval(None if band is None else list(band))}"


def _flags(made: Advice) -> None:
    if not made.flags:
        return
    st.markdown(f"**{t('advisor.flags')}**")
    if made.test is not None:  # the change of a run of this machine's own engine
        st.caption(t("advisor.flags_help"))
    for flag in made.flags:
        note = f" {escape(translated(flag.note))}" if flag.note else ""
        typed = f"`{flag.text}`" if flag.text else ""
        st.markdown(f"{flag.engine}{t('colon')}{typed}{note}")
