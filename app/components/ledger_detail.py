"""The lower sections of the Ledger page: formulas with numbers put in, tables, trap, and taking the result away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components.calculator import files, link, same_model
from app.components.section import escape, section_head
from app.navigation import page_of
from app.state import badge, language, t
from experiments.ledger_view import KvTerm, LedgerView, ledger_rows
from experiments.report.words import MISSING
from ledger.capacity import Deployment

GIB, MIB = 2**30, 2**20


def gib(size: float | None) -> str:
    """Bytes as GiB with two decimals; a dash for none."""
    return MISSING if size is None else f"{size / GIB:,.2f}"


def mib(size: float | None) -> str:
    """Bytes as MiB, whole from 100 up; a dash for none."""
    return MISSING if size is None else f"{size / MIB:,.0f}" if size >= 100 * MIB else f"{size / MIB:,.2f}"


def size_text(size: int) -> str:
    """Bytes in GB and GiB, for a sentence."""
    return t("calc.both_units", gb=f"{size / 1e9:,.2f}", gib=gib(size))


def formulas(d: Deployment, view: LedgerView) -> None:
    """Every step with the numbers of the chosen deployment."""
    st.markdown(f"## {t('ledger.formulas')} {badge('computed')}")
    st.caption(t("ledger.formulas_caption"))
    chosen = view.chosen
    show_steps(kv_steps(view.kv_terms, chosen.sequence_bytes, chosen.state_bytes, d.concurrency) + _room_steps(view))


def show_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Name and arithmetic of each step."""
    for name, text in steps:
        st.markdown(f"**{name}**  \n{escape(text)}")


def kv_steps(terms: Sequence[KvTerm], sequence: int, state: int, count: int) -> list[tuple[str, str]]:
    """From the bytes of a token to those of all sequences."""
    steps = [(t("ledger.step_token"), _token_text(terms))]
    if terms:
        kept = " + ".join(t("ledger.kept", bytes=f"{one.token_bytes:,}", tokens=f"{one.kept:,}") for one in terms)
        text = t("ledger.step_sequence_text", terms=kept, bytes=f"{sequence:,}", gib=gib(sequence))
        steps.append((t("ledger.step_sequence"), text))
    if state:
        steps.append((t("ledger.step_state"), t("ledger.step_state_text", bytes=f"{state:,}", mib=mib(state))))
    each = {"count": f"{count:,}", "each": f"{sequence + state:,}", "gib": gib(count * (sequence + state))}
    return [*steps, (t("ledger.step_batch"), t("ledger.step_batch_text", **each))]


def _room_steps(view: LedgerView) -> list[tuple[str, str]]:
    """Weights, the room that is left for KV, and how many sequences go into it."""
    report = view.weights
    numbers = {"params": f"{report['params_text']:,}", "bits": f"{report['bits_per_parameter']:.6g}"}
    size = {"bytes": f"{report['total_bytes']:,}", "gib": gib(report["total_bytes"])}
    text = t("ledger.step_weights_text", **numbers, **size)
    held = view.chosen.ledger.account("weights").bytes
    if held != report["total_bytes"]:
        text += t("ledger.step_weights_rank", gib=gib(held))
    steps = [(t("ledger.step_weights"), text)]
    if view.kv_room_bytes is not None:
        each = view.chosen.sequence_bytes + view.chosen.state_bytes
        numbers = {
            "room": f"{view.kv_room_bytes:,}",
            "each": f"{each:,}",
            "count": f"{view.chosen.max_concurrency or 0:,}",
        }
        steps.append((t("ledger.step_room"), _room_text(view)))
        steps.append((t("ledger.step_max"), t("ledger.step_max_text", **numbers)))
    return steps


def _token_text(terms: Sequence[KvTerm]) -> str:
    if not terms:
        return t("ledger.no_kv")
    total = f"{sum(term.token_bytes for term in terms):,}"
    return t("ledger.step_token_text", terms=" + ".join(_term(term, len(terms) > 1) for term in terms), bytes=total)


def _term(term: KvTerm, named: bool) -> str:
    """One kind of layer: 32 layers x 2 x 8 KV heads x 128 x 2 B; only its bytes where it keeps more than that."""
    count = {"count": f"{term.layers:,}"}
    layers = (
        t("ledger.layers_kind", kind=t(f"kind.{term.kind}"), **count) if named else t("ledger.layers_plain", **count)
    )
    numbers = {
        "heads": term.heads,
        "k": term.k_dim,
        "v": term.v_dim,
        "latent": term.latent,
        "each": f"{term.element_bytes:g}",
    }
    return t(f"ledger.term_{term.form}", layers=layers, bytes=f"{term.layer_bytes:,}", **numbers)


def _room_text(view: LedgerView) -> str:
    parts = [account for account in view.chosen.ledger.accounts if account.name not in ("kv_cache", "state")]
    # In bytes: terms rounded to MiB need not add up to the rounded result.
    numbers = {"usable": f"{view.usable_bytes:,}", "minus": " − ".join(f"{account.bytes:,}" for account in parts)}
    if not view.kv_room_bytes:
        return t("ledger.step_room_none", **numbers)
    return t("ledger.step_room_text", room=f"{view.kv_room_bytes:,}", gib=gib(view.kv_room_bytes), **numbers)


def bits_text(payload: int, bits: float) -> str:
    """Payload and overhead of an element: "4 + 0.5"."""
    return f"{payload} + {bits - payload:.3g}" if bits > payload else f"{payload}"


def concurrency(d: Deployment, view: LedgerView) -> None:
    """How many sequences each precision holds, and how many if scales took no room."""
    top = max([1, *(item.max_concurrency or 0 for item in view.precisions)])
    rows = [
        {
            t("calc.kv"): item.kv_dtype.upper(),
            t("ledger.max_concurrency"): item.max_concurrency,  # first: on a phone the rest is beyond the edge
            t("ledger.bits"): bits_text(item.payload_bits, item.bits),
            t("ledger.mib_a_sequence"): mib(item.sequence_bytes),
            t("ledger.without_scales"): MISSING if item.without_scales is None else f"{item.without_scales:,}",
        }
        for item in view.precisions
    ]
    frame = pd.DataFrame(rows)
    title = f"{t('ledger.max_title', tokens=f'{d.seq_len:,}')} {badge('computed')}"
    section_head(title, t("ledger.max_caption"), frame, "concurrency")
    column = st.column_config.ProgressColumn(t("ledger.max_concurrency"), min_value=0, max_value=top, format="%d")
    st.dataframe(frame, hide_index=True, column_config={t("ledger.max_concurrency"): column})
    longest = view.report["max_seq_len"]
    if longest is not None:
        key = "ledger.max_length" if longest else "ledger.no_length"
        st.caption(t(key, count=f"{d.concurrency:,}", tokens=f"{longest:,}"))


def trap(d: Deployment, view: LedgerView) -> None:
    """Why half the bits are not twice the sequences, with a way to measure what it costs."""
    st.markdown(f"## {t('ledger.trap')}")
    st.markdown(t("ledger.trap_scales"))
    st.markdown(t("ledger.trap_rest"))
    if any(term.window for term in view.kv_terms):
        st.markdown(t("ledger.trap_windows"))
    st.markdown(t("ledger.trap_pages", block=d.block_size, most=(d.block_size or 1) - 1))
    address = {"variable": "kv_layout", "lang": language()}
    st.page_link(page_of("workbench"), label=t("ledger.to_workbench"), icon=":material/science:", query_params=address)


def weights(view: LedgerView) -> None:
    """Weights by part: how many parameters, in what they are stored, and what stays 16-bit."""
    report = view.weights
    with st.container(border=True):
        rows = [
            {
                t("ledger.part"): t(f"part.{row['part']}"),
                t("ledger.parameters"): row["parameters"],
                t("ledger.column_part_gib"): row["bytes"] / GIB,
                t("ledger.column_16bit_gib"): row["bytes_16bit"] / GIB,
            }
            for row in report["parts"]
        ]
        total = {
            t("ledger.part"): t("ledger.total"),
            t("ledger.parameters"): report["params_text"],
            t("ledger.column_part_gib"): report["total_bytes"] / GIB,
            t("ledger.column_16bit_gib"): report["bytes_16bit"] / GIB,
        }
        frame = pd.DataFrame([*rows, total])
        numbers = {
            "name": report["format"].upper(),
            "share": f"{100 * report['share_of_16bit']:.1f}",
            "bits": f"{report['bits_per_parameter']:.2f}",
        }
        section_head(
            f"{t('ledger.weights')} {badge('computed')}", t("ledger.weights_caption", **numbers), frame, "weights"
        )
        sizes = (t("ledger.column_part_gib"), t("ledger.column_16bit_gib"))
        columns: dict[str, Any] = {name: st.column_config.NumberColumn(name, format="%.2f") for name in sizes}
        count = t("ledger.parameters")
        columns[count] = st.column_config.NumberColumn(count, format="localized")
        st.dataframe(frame, hide_index=True, column_config=columns)
        if report["params_active"] < report["params_text"]:
            active = {"active": f"{report['params_active']:,}", "total": f"{report['params_text']:,}"}
            st.caption(t("ledger.active", **active, gib=gib(report["active_bytes"])))


LAYER_COLUMNS = {
    "layer": "layer",
    "kind": "kind",
    "kv_heads": "kv_heads",
    "k_head_dim": "k_dim",
    "v_head_dim": "v_dim",
    "latent_dim": "latent",
    "window": "window",
    "bytes_per_token": "token_bytes",
    "tokens_kept": "tokens_kept",
    "bytes_per_sequence": "sequence_bytes",
    "state_bytes_per_sequence": "state_bytes",
}
"""Field of a layer's record -> the text that names its column."""


def layers_table(rows: Sequence[dict[str, Any]]) -> None:
    """One record a layer, as the arithmetic has it; what a layer does not have stays empty."""
    with st.expander(t("ledger.layers_title", count=len(rows))):
        kinds = {kind: t(f"kind.{kind}") for kind in {row["kind"] for row in rows}}
        names = {field: t(f"ledger.{text}") for field, text in LAYER_COLUMNS.items()}
        shown = [{**row, "kind": kinds[row["kind"]]} for row in rows]
        table = [
            {name: row[field] if field == "layer" else row[field] or None for field, name in names.items()}
            for row in shown
        ]
        st.dataframe(pd.DataFrame(table), hide_index=True)


def export(view: LedgerView, command: str) -> None:
    """The figures as files, the link, and the command line that gives the same."""
    st.markdown(f"## {t('result.export')}")
    st.caption(t("ledger.export_caption"))
    files("ledger", view.report, ledger_rows(view))
    address = same_model()
    st.page_link(page_of("roofline"), label=t("ledger.to_roofline"), icon=":material/show_chart:", query_params=address)
    st.code(command, language="shell", wrap_lines=True)
    if "config.json" in command:
        st.caption(t("ledger.command_note"))
    link()
