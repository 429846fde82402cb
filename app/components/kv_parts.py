"""The Ledger page for a model whose weights are not known: the KV cache alone."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.components.calculator import files, link
from app.components.ledger_detail import bits_text, kv_steps, layers_table, mib, show_steps, size_text
from app.components.section import section_head
from app.state import badge, t
from experiments.kv_view import KvView, kv_rows


def kv_page(view: KvView, seq_len: int, concurrency: int, command: str) -> None:
    """Verdict, formulas, precisions, layers, and the figures to take away."""
    with st.container(border=True, key="verdict"):
        st.markdown(f":gray-badge[{t('ledger.kv_only')}] {badge('computed')}")
        with st.container(key="verdict_sentence"):
            numbers = {"count": f"{concurrency:,}", "tokens": f"{seq_len:,}", "name": view.chosen.kv_dtype.upper()}
            st.markdown(t("ledger.sentence_kv", size=size_text(view.chosen.total_bytes), **numbers))
        st.caption(t("ledger.unknown_weights"))
    with st.container(border=True):
        st.markdown(f"## {t('ledger.formulas')} {badge('computed')}")
        st.caption(t("ledger.formulas_caption"))
        show_steps(kv_steps(view.kv_terms, view.sequence_bytes, view.state_bytes, concurrency))
    with st.container(border=True):
        rows = [
            {
                t("calc.kv"): row.kv_dtype.upper(),
                t("ledger.bits"): bits_text(row.payload_bits, row.bits),
                t("ledger.mib_a_sequence"): mib(row.sequence_bytes),
                t("ledger.all_mib"): mib(row.total_bytes),
                t("ledger.at_most"): f"{row.at_most:,}",
            }
            for row in view.precisions
        ]
        frame = pd.DataFrame(rows)
        title = f"{t('ledger.kv_title', tokens=f'{seq_len:,}')} {badge('computed')}"
        section_head(title, t("ledger.max_caption"), frame, "kv")
        st.dataframe(frame, hide_index=True)
    layers_table(view.report["per_layer"])
    st.markdown(f"## {t('result.export')}")
    st.caption(t("ledger.export_caption"))
    files("kv", view.report, kv_rows(view))
    st.code(command, language="shell", wrap_lines=True)
    link()
