"""How good the simulator is: what a card's figures come from, and its errors against the engine on this processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.components.section import escape
from app.state import badge, t
from experiments.planner_view import ERRORS, simulator_errors
from experiments.report.words import MISSING, number


def trust(profile: Mapping[str, Any]) -> None:
    """Draw it as an expander. profile: of the card, as a result has it."""
    with st.expander(t("plan.trust")):
        known = t(f"plan.calibration_{profile['calibration']}")
        st.markdown(t("plan.trust_card", card=escape(profile["label"]), known=known,
                      band=number(profile["error_band_pct"])))  # fmt: skip
        for source in profile["sources"]:
            st.caption(escape(source))
        found = simulator_errors()
        if found is None:
            st.caption(t("plan.no_errors"))
            return
        st.markdown(f"{t('plan.errors')} {badge('measured')}")
        cells = [
            {
                t("plan.col_formats"): row["formats"],
                t("plan.col_case"): row["case"],
                **{t(f"plan.error_{name}"): _percent(row[name]) for name in ERRORS},
            }
            for row in found.rows
        ]
        st.table(pd.DataFrame(cells), hide_index=True)
        st.caption(t("plan.mean_errors", list=t("list_join").join(
            f"{t(f'plan.error_{name}')} {number(value)} %" for name, value in found.mean_pct.items()
        )))  # fmt: skip


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:+.1f} %".replace("-", "−")
