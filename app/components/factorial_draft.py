"""The 2 x 2 experiment being set up: one spec in the session, begun anew or from the Workbench's comparison."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components.draft import STARTS
from experiments.factorial import FactorialSpec

KEY = "two-draft"


def draft() -> dict[str, Any]:
    """The experiment being set up, a factorial spec; the default one when the session has none."""
    if KEY not in st.session_state:
        st.session_state[KEY] = FactorialSpec().to_dict()
    found: dict[str, Any] = st.session_state[KEY]
    return found


def begin(comparison: dict[str, Any], second: str) -> None:
    """Make the draft a comparison's variable crossed with `second`; its workload and settings are kept."""
    spec = FactorialSpec().to_dict()
    kept = {name: value for name, value in comparison.items() if name in spec}
    settings = {name: value for name, value in comparison["settings"].items() if name != second}
    factors = [[comparison["variable"], list(comparison["values"])], [second, list(STARTS[second])]]
    st.session_state[KEY] = {**spec, **kept, "settings": settings, "factors": factors}
    st.session_state["two-version"] = version() + 1


def version() -> int:
    """Part of every widget's key, so that a new draft is shown rather than the widget's old value."""
    return int(st.session_state.get("two-version", 0))
