"""The line that says what of a step was host work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.state import t
from experiments.report.words import number, percent


def host_share(host: Mapping[str, Any], arm: str) -> None:
    """Median host time of a step and its share, measured; nothing for a run whose steps don't tell them apart."""
    if host["share"]["n"]:
        share = percent(100 * host["share"]["p50"])
        st.caption(t("trace.host", arm=arm, ms=number(1000 * host["host_s"]["p50"]), share=share, n=host["share"]["n"]))
