"""What a run's result has to be read with: its warnings, behind one line that counts them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.components.section import escape
from app.state import t, translated


def warned(warnings: Sequence[str]) -> None:
    """Draw the line where there is something to warn of."""
    if warnings:
        with st.expander(t("result.warnings", count=len(warnings)), icon=":material/warning:"):
            st.markdown("\n".join(f"- {escape(translated(text))}" for text in warnings))
