"""The head of a section: title and caption, with its figures as table and CSV at the right."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.state import t


def section_head(title: str, caption: str, frame: pd.DataFrame, key: str) -> None:
    """Draw it; `key` names the CSV file and must be the only one of its kind on the page."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with st.container(gap="xsmall", width="stretch"):
            st.markdown(f"## {title}")
            st.caption(caption)
        with st.popover(t("result.table"), type="tertiary", icon=":material/table:"):
            st.dataframe(frame, hide_index=True)
        st.download_button(
            t("result.csv"), frame.to_csv(index=False), f"{key}.csv", "text/csv", type="tertiary",
            icon=":material/download:", key=f"csv-{key}", on_click="ignore",
        )  # fmt: skip


def escape(text: str) -> str:
    """Keep intervals and ids from being read as markdown links, maths or emphasis."""
    return "".join(f"\\{char}" if char in "[]$*_~`" else char for char in text)
