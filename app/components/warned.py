"""What a run's result has to be read with: its warnings; more than a few stand behind a line that counts them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.components.section import escape
from app.state import t, translated

FEW = 2


def warned(warnings: Sequence[str]) -> None:
    """Draw the line where there is something to warn of."""
    if warnings:
        few = len(warnings) <= FEW
        with st.expander(t("result.warnings", count=len(warnings)), icon=":material/warning:", expanded=few):
            st.markdown("\n".join(f"- {escape(translated(text))}" for text in warnings))
