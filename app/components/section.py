"""The head of a section: title and caption, with its figures as table and CSV at the right.

Owns how much of a long table is sent to the browser: the first rows, and all of them in the CSV, which is made when it
is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app.state import t
from experiments.spreadsheet import safe_cell

if TYPE_CHECKING:  # every page imports this one, and the first is drawn without a table
    import pandas as pd

MOST_ROWS = 500
NO_BREAK = "\u00a0"


def section_head(title: str, caption: str, frame: pd.DataFrame, key: str) -> None:
    """Draw it; `key` names the CSV file and must be the only one of its kind on the page. An empty title stands above
    already."""
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"head_{key}"):
        with st.container(gap="xsmall", width="stretch"):
            if title:
                st.markdown(f"## {title}")
            st.caption(caption)
        with st.popover(t("result.table"), type="tertiary", icon=":material/table:"):
            first_rows(frame)
        st.download_button(
            t("result.csv"), lambda: csv_of(frame), f"{key}.csv", "text/csv", type="tertiary",
            icon=":material/download:", key=f"csv-{key}", on_click="ignore",
        )  # fmt: skip


def first_rows(frame: pd.DataFrame, **columns: Any) -> None:
    """The frame as a table, and what is left out of a long one. columns: Streamlit's column_config."""
    st.dataframe(drawable(frame.head(MOST_ROWS)), hide_index=True, column_config=columns or None)
    if len(frame) > MOST_ROWS:
        st.caption(t("result.first_rows", n=MOST_ROWS, total=f"{len(frame):,}"))


def csv_of(frame: pd.DataFrame) -> str:
    """The frame as CSV whose texts and names no spreadsheet takes for formulas."""
    return frame.map(safe_cell).rename(columns=safe_cell).to_csv(index=False)


def drawable(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with whole numbers that Arrow can't hold (64 bits, mixed with fractions 53) as floats; the CSV keeps
    them exact."""
    most = 2**53
    large = [
        name
        for name in frame.columns
        if any(isinstance(value, int) and abs(value) > most for value in frame[name].tolist())
    ]
    return frame.astype(dict.fromkeys(large, float)) if large else frame


def escape(text: str) -> str:
    """Keep intervals and ids from being read as markdown links, maths or emphasis."""
    return "".join(f"\\{char}" if char in "[]$*_~`" else char for char in text)
