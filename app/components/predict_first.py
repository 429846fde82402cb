"""Predict first: a form for what the reader expects of each candidate before a result is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from app.components.section import escape
from app.state import t
from experiments.quality.predictions import Expected, Prediction
from experiments.report.words import MISSING
from experiments.store import Run

Keep = Callable[[dict[str, Prediction]], None]


def ask(run: Run, names: Mapping[str, str], expected: Sequence[Expected], prefix: str, keep: Keep) -> None:
    """The form, with a way around it; `keep` gets what was entered, or nothing.

    names: how the page calls each candidate, by label. Texts are `prefix`.predict_help, .predict_ready, .expect_FIGURE.
    """
    with st.container(border=True, key="predict"):
        st.markdown(f"## {t('quant.predict')}")
        st.caption(t(f"{prefix}.predict_help" if run.result is None else f"{prefix}.predict_ready"))
        with st.form(f"predict-{run.id}", border=False):
            with st.grid(2, min_column_width=330):
                for place, name in enumerate(names.values()):
                    with st.container(border=True):
                        _inputs(run.id, place, name, expected, prefix)
            with st.container(horizontal=True):
                st.form_submit_button(
                    t("quant.lock_in" if run.result is None else "quant.lock_in_show"), type="primary",
                    icon=":material/lock:", on_click=lambda: keep(_entered(run.id, list(names), expected)),
                )  # fmt: skip
                st.form_submit_button(t("quant.skip"), on_click=lambda: keep({}))


def _inputs(run_id: str, place: int, name: str, expected: Sequence[Expected], prefix: str) -> None:
    st.markdown(f"**{escape(name)}**")
    for column, item in zip(st.columns(len(expected), wrap=False), expected, strict=True):
        with column:
            st.number_input(
                t(f"{prefix}.expect_{item.name}"), item.low, item.high, None, step=item.step, format="%g",
                placeholder=MISSING, key=_key(run_id, place, item),
            )  # fmt: skip


def _key(run_id: str, place: int, item: Expected) -> str:
    return f"predict-{run_id}-{place}-{item.name}"


def _entered(run_id: str, labels: Sequence[str], expected: Sequence[Expected]) -> dict[str, Prediction]:
    """What was entered, by candidate; one without any figure is left out."""
    found = {
        label: {item.name: st.session_state.get(_key(run_id, place, item)) for item in expected}
        for place, label in enumerate(labels)
    }
    return {label: figures for label, figures in found.items() if any(v is not None for v in figures.values())}
