"""Predicted against measured memory, account by account, with the line "unexplained": one table for every page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.components.section import escape, section_head
from app.state import badge, t, translated
from experiments.memory_view import AccountRow, account_rows
from experiments.report.words import MISSING

MIB = 2**20


def accounts_section(memories: Mapping[str, Mapping[str, Any]], key: str) -> None:
    """The tables of one or more arms by name, with the figures in bytes as table and CSV; a note for older runs."""
    found = {name: account_rows(memory) for name, memory in memories.items()}
    rows = [_exact(name, row) for name, each in found.items() for row in each]
    title = f"{t('accounts.title')} {badge('computed')} {badge('measured')}"
    if not rows:
        st.markdown(f"**{t('accounts.title')}**")
        st.caption(t("accounts.older"))
        return
    section_head(title, t("accounts.caption"), pd.DataFrame(rows), key)
    for name, each in found.items():
        if len(found) > 1:
            st.markdown(f"**{name}**")
        accounts_table(each)


def accounts_table(rows: list[AccountRow]) -> None:
    """account, predicted, measured, difference in MiB."""
    columns = {t("accounts.account"): st.column_config.Column(width="medium")}
    st.dataframe(pd.DataFrame([_shown(row) for row in rows]), hide_index=True, column_config=columns)
    with st.expander(t("accounts.how")):  # in the table it would be cut at the edge
        for row in rows:
            if row.how:
                st.markdown(f"**{_name(row)}**  \n{escape(translated(row.how))}")


def _name(row: AccountRow) -> str:
    return t(f"accounts.{row.name}")


def _shown(row: AccountRow) -> dict[str, str]:
    return {
        t("accounts.account"): _name(row),
        t("accounts.predicted"): _mib(row.predicted_bytes),
        t("accounts.measured"): _mib(row.measured_bytes),
        t("accounts.difference"): _mib(row.difference_bytes),
    }


def _exact(arm: str, row: AccountRow) -> dict[str, Any]:
    sizes = {"predicted": row.predicted_bytes, "measured": row.measured_bytes, "difference": row.difference_bytes}
    return {"": arm, t("accounts.account"): _name(row)} | {t(f"accounts.{k}_bytes"): v for k, v in sizes.items()}


def _mib(size: int | None) -> str:
    return MISSING if size is None else f"{size / MIB:,.2f}".replace("-", "−")
