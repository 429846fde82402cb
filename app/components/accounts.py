"""Predicted against measured memory, account by account, with the line "unexplained": one table for every page."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pandas as pd
import streamlit as st

from app.components.section import escape, section_head
from app.state import badge, t, translated
from experiments.memory_view import AccountRow, account_rows
from experiments.report.words import MISSING
from ledger.memory import Provenance

MIB = 2**20


def accounts_section(memories: Mapping[str, Mapping[str, Any]], key: str, *, folded: bool = False) -> None:
    """The tables of one or more arms by name, with the figures in bytes as table and CSV; a note for older runs.

    folded: behind their title, where another figure of the section comes first.
    """
    found = {name: account_rows(memory) for name, memory in memories.items()}
    rows = [_exact(name, row) for name, each in found.items() for row in each]
    if not rows:
        st.markdown(f"**{t('accounts.title')}**")
        st.caption(t("accounts.older"))
        return
    with st.expander(t("accounts.title")) if folded else nullcontext():
        section_head("" if folded else t("accounts.title"), t("accounts.caption"), pd.DataFrame(rows), key)
        _tables(found)


def _tables(found: Mapping[str, list[AccountRow]]) -> None:
    for name, each in found.items():
        if len(found) > 1:
            st.markdown(f"**{name}**")
        accounts_table(each)
    with st.expander(t("accounts.how")):
        for name, each in found.items():
            if len(found) > 1:
                st.markdown(f"**{name}**")
            accounts_how(each)


def accounts_table(rows: list[AccountRow]) -> None:
    """account, predicted, measured and difference in MiB, each figure with its label."""
    st.table(pd.DataFrame([_shown(row) for row in rows]), hide_index=True)


def accounts_how(rows: list[AccountRow]) -> None:
    """How each account's two figures come about, one line each, with the numbers put in."""
    for row in rows:
        lines = [f"**{_name(row)}**"]
        if row.how:
            lines.append(f"{_label(row.provenance)} {escape(translated(row.how))}")
        if row.measured_provenance and row.measured_how:
            lines.append(f"{badge(row.measured_provenance)} {t(f'accounts.read.{row.name}')}")
        if len(lines) > 1:
            st.markdown("  \n".join(lines))


def _name(row: AccountRow) -> str:
    return t(f"accounts.{row.name}")


def _shown(row: AccountRow) -> dict[str, str]:
    return {
        t("accounts.account"): _name(row),
        t("accounts.predicted"): _labelled(row.predicted_bytes, _origin(row)),
        t("accounts.measured"): _labelled(row.measured_bytes, _label(row.measured_provenance)),
        t("accounts.difference"): _mib(row.difference_bytes),
    }


def _origin(row: AccountRow) -> str:
    """The badge of a prediction; where a reading stands for it, that is said."""
    return f"{t('accounts.reading')} {badge('measured')}" if row.provenance == "measured" else _label(row.provenance)


def _label(provenance: Provenance | None) -> str:
    return badge(provenance) if provenance else ""


def _labelled(size: int | None, label: str) -> str:
    return f"{_mib(size)} {label}".rstrip()


def _exact(arm: str, row: AccountRow) -> dict[str, Any]:
    sizes = {"predicted": row.predicted_bytes, "measured": row.measured_bytes, "difference": row.difference_bytes}
    labels = {"predicted": row.provenance, "measured": row.measured_provenance}
    return (
        {"": arm, t("accounts.account"): _name(row)}
        | {t(f"accounts.{k}_bytes"): v for k, v in sizes.items()}
        | {t(f"accounts.{k}_label"): t(v) if v else "" for k, v in labels.items()}
    )


def _mib(size: int | None) -> str:
    return MISSING if size is None else f"{size / MIB:,.2f}".replace("-", "−")
