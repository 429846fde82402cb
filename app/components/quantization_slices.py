"""Verdicts by slice and format: a slice that lost is red and named, also where the mean did not move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components.quantization_words import nats, signed
from app.components.section import escape, section_head
from app.state import badge, t, words
from experiments.quality.overlooked import FOUND, LEAST_LOSS, LITTLE, NONE
from experiments.quantization_view import SliceCell, SliceLine

MARKS = {"better": "▲", "worse": "▼", "no difference": "=", "inconclusive": "?"}
COLOURS = {"better": "green", "worse": "red"}


def slice_name(name: str) -> str:
    """A slice's name in the reader's language; the user's own stay as they are."""
    return words().get(f"quant.slice_{name}", name)


def slices(lines: Sequence[SliceLine], names: Mapping[str, str]) -> None:
    """The table of slices down and formats across, with the figures as file."""
    frame = pd.DataFrame([row for line in lines for row in _exact(line, names)])
    with st.container(border=True):
        section_head(f"{t('quant.slices')} {badge('measured')}", t("quant.slices_caption"), frame, "slices")
        st.table(pd.DataFrame([_shown(line, names) for line in lines]), hide_index=True)
        st.caption(t("quant.slices_legend"))


def _shown(line: SliceLine, names: Mapping[str, str]) -> dict[str, str]:
    name = escape(slice_name(line.name))
    baseline = f"{100 * line.accuracy:.1f} %"
    if not line.signal:
        baseline += f"  \n:gray-badge[{t('quant.no_signal')}]"
    return {
        t("quant.slice"): f"**{name}**" if line.is_all else name,
        t("quant.items"): f"{line.items:,}",
        t("quant.baseline"): baseline,
        **{escape(names[cell.label]): _cell(cell) for cell in line.cells},
    }


def _cell(cell: SliceCell) -> str:
    figure = signed(cell.change) if cell.scored_by == "accuracy" else nats(cell.change)
    text = f"{MARKS[cell.verdict]} {figure}"
    colour = COLOURS.get(cell.verdict)
    if colour is None:
        return text
    said = f":{colour}-badge[{text}]"
    return f"{said}  \n:red[{t('quant.hidden')}]" if cell.mean_hides else said


def _exact(line: SliceLine, names: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "slice": line.name, "items": line.items, "baseline_accuracy": line.accuracy, "chance": line.chance,
            "signal": line.signal, "format": names[cell.label], "scored_by": cell.scored_by, "change": cell.change,
            "low": None if cell.ci95 is None else cell.ci95[0], "high": None if cell.ci95 is None else cell.ci95[1],
            "p_adjusted": cell.p, "verdict": cell.verdict,
        }
        for cell in line.cells
    ]  # fmt: skip


def overlooked(found: Mapping[str, Any] | None, names: Mapping[str, str]) -> None:
    """Whether a mean that hardly moves hides a slice's loss: chosen on half of the items, confirmed on the other."""
    if found is None:
        return
    if found["verdict"] == NONE:
        st.caption(t("quant.overlooked_none", points=f"{LEAST_LOSS:g}", little=f"{LITTLE:g}"))
        return
    first, second = found["chosen_on"], found["confirmed_on"]
    said = t(
        "quant.overlooked_found" if found["verdict"] == FOUND else "quant.overlooked_open",
        name=names[found["candidate"]],
        slice=slice_name(found["slice"]),
        first=signed(first["slice_change_points"]),
        second=signed(second["slice_change_points"]),
        mean=signed(second["mean_change_points"]),
        p=f"{second['p']:.2g}",
    )
    st.markdown(f":red[{escape(said)}]" if found["verdict"] == FOUND else f":gray[{escape(said)}]")
