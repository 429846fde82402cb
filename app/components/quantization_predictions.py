"""Predict first: what the reader expects of every format before a result is shown, and how that compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components import predict_first
from app.components.format_names import format_name
from app.components.predict_first import Keep
from app.components.quantization_words import points, ratio
from app.components.section import escape, section_head
from app.state import badge, t
from experiments.quality.predictions import EXPECTED
from experiments.quantization_setup import Asked, asked
from experiments.quantization_view import FormatRow, Interval, format_rows, guesses
from experiments.report.words import MISSING, number
from experiments.store import Run
from ledger.errors import InputError


def ask(run: Run, keep: Keep) -> None:
    """The form, with a way around it; `keep` gets what was entered, or nothing."""
    try:
        candidates = _candidates(run)
    except InputError as error:
        st.error(t("failed.input_error", error=escape(str(error))))
        return
    names = {label: format_name(one.changed, one.group, one.dtype) for label, one in candidates.items()}
    predict_first.ask(run, names, EXPECTED, "quant", keep)


def _candidates(run: Run) -> dict[str, Asked]:
    if run.result is None:
        return asked(run.spec)
    return {row.label: Asked(row.changed, row.group, row.dtype) for row in format_rows(run.result)[1:]}


def compared(rows: Sequence[FormatRow], predictions: Mapping[str, Any] | None) -> None:
    """Predictions beside measurements; one line where they were skipped."""
    found = guesses(rows, predictions or {})
    if not found:
        st.caption(t("quant.no_predictions"))
        return
    names = {row.label: format_name(row.changed, row.group, row.dtype) for row in rows}
    table = [
        {
            t("quant.format"): names[guess.label],
            t("quant.figure"): t(f"quant.expect_{guess.figure}"),
            t("quant.expected"): _shown(guess.figure, Interval(guess.expected)),
            t("quant.found"): _shown(guess.figure, guess.measured),
        }
        for guess in found
    ]
    frame = pd.DataFrame(table)
    with st.container(border=True):
        section_head(f"{t('quant.compared')} {badge('measured')}", t("quant.compared_caption"), frame, "predictions")
        st.table(frame.map(escape), hide_index=True)


def _shown(figure: str, value: Interval) -> str:
    if figure == "memory_pct":
        return MISSING if value.value is None else f"{number(value.value)} %"
    return points(value) if figure == "accuracy_points" else ratio(value)
