"""Ranks: one model over several processes here; what they hand over, wait for and hold, and what links would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.components.calculator import files, link
from app.components.inputs import choice
from app.components.run_button import run_button
from app.components.section import NO_BREAK, escape, section_head
from app.state import badge, sentences, t, translated
from experiments.ranks_view import (
    REPEATS,
    RanksChoice,
    elsewhere,
    measured,
    rank_table,
    ranks_command,
    times_the_step,
)
from experiments.report.words import number
from experiments.store import Run

MIB = 2**20
Row = Mapping[str, Any]


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[RanksChoice], None],
    on_cancel: Callable[[], None],
) -> RanksChoice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        left, button = st.columns([3, 1], vertical_alignment="bottom")
        with left:
            repeats = choice(page, "ranks_repeats", t("ranks.repeats"), [str(n) for n in REPEATS], "4", str)
        found = RanksChoice(int(repeats))
        with button:
            run_button(active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                       primary=primary)  # fmt: skip
        st.caption(t("ranks.setup_help"))
    return found


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    rows = measured(result)
    _verdict(rows, result)
    _table(rows, result)
    for row in rows[1:]:
        _held(row)
    _links(result)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"ranks.{kind}"))
    st.markdown(f"## {t('result.export')}")
    files(f"ranks-{run.id}", result, rows)
    st.code(ranks_command(run), language="shell", wrap_lines=True)
    link()


def _verdict(rows: list[Row], result: Mapping[str, Any]) -> None:
    same = all(row["same_ids"] and row["equals_formula"] for row in rows)
    with st.container(border=True, key="verdict"):
        st.markdown(f":{'green' if same else 'orange'}-badge[{t('ranks.same' if same else 'ranks.differ')}] "
                    f"{badge('measured')}")  # fmt: skip
        told = [
            t(
                "ranks.sentence",
                split=_split(row),
                times=number(times_the_step(row, result)),
                share=number(100 * row["communication_share"]),
            )
            for row in rows[1:]
        ]
        with st.container(key="verdict_sentence"):
            st.markdown(escape(sentences([t("ranks.same_text" if same else "ranks.differ_text"), *told])))
        st.caption(t("ranks.basis", threads=rows[0]["threads"], repeats=rows[0]["repeats"]))


def _table(rows: list[Row], result: Mapping[str, Any]) -> None:
    with st.container(border=True):
        section_head(f"{t('ranks.table')} {badge('measured')}", t("ranks.table_caption"), pd.DataFrame(rows), "splits")
        cells = [
            {
                "split": _split(row),
                "ids": t("ranks.yes" if row["same_ids"] else "ranks.no"),
                "bytes": f"{row['handed_bytes_per_step']:,.0f}",
                "formula": t("ranks.yes" if row["equals_formula"] else "ranks.no"),
                "talk": f"{number(100 * row['communication_share'])} %",
                "wait": f"{number(100 * row['bubble_share'])} %",
                "step": f"{number(1000 * row['decode_step_s'])}{NO_BREAK}ms",
                "times": f"{number(times_the_step(row, result))} ×",
            }
            for row in rows
        ]
        names = {name: t(f"ranks.col_{name}") for name in cells[0]}
        st.table(pd.DataFrame([{names[name]: text for name, text in row.items()} for row in cells]), hide_index=True)
        for row in rows[1:]:
            st.caption(escape(f"{_split(row)}{t('colon')}{translated(row['formula'])}"))
        tensor = next((row for row in rows if row["tensor_parallel"] > 1), None)
        if tensor is not None:
            st.caption(t("ranks.ring", factor=number(tensor["ring_factor"])))


def _held(row: Row) -> None:
    """Heads and bytes of each rank of a split, by the ledger."""
    found = rank_table(row["tensor_parallel"], row["pipeline_parallel"])
    with st.expander(f"{t('ranks.held', split=_split(row))} {badge('computed')}"):
        cells = [
            {
                t("ranks.col_rank"): str(one["rank"]),
                t("ranks.col_layers"): f"{one['layers'][0]}–{one['layers'][1] - 1}",
                t("ranks.col_query"): str(one["query_heads"]),
                t("ranks.col_kv"): str(one["kv_heads"]),
                t("ranks.col_mlp"): f"{one['mlp_columns']:,}",
                t("ranks.col_weights"): t("ranks.mib", value=f"{one['weights_bytes'] / MIB:,.1f}"),
            }
            for one in found.rows
        ]
        st.table(pd.DataFrame(cells), hide_index=True)
        st.caption(t("ranks.imbalance", heads=number(found.heads_imbalance), bytes=number(found.bytes_imbalance)))


def _links(result: Mapping[str, Any]) -> None:
    """What the all-reduces of a larger model take over links that are not here, and whole steps over them."""
    computed, simulated = elsewhere(result, "computed"), elsewhere(result, "simulated")
    if computed:
        with st.container(border=True):
            section_head(f"{t('ranks.links')} {badge('computed')}", t("ranks.links_caption"), pd.DataFrame(computed),
                         "links")  # fmt: skip
            cells = [
                {t("ranks.col_what"): translated(row["part"]), t("ranks.col_reduces"): str(row["all_reduces"]),
                 t("ranks.col_time"): f"{number(1000 * row['all_reduce_s'])}{NO_BREAK}ms"}
                for row in computed
            ]  # fmt: skip
            st.table(pd.DataFrame(cells), hide_index=True)
    if simulated:
        with st.container(border=True):
            first = simulated[0]
            band = number(first["error_band_pct"])
            caption = t("ranks.steps_caption", model=first["model"], card=first["gpu"], band=band)
            section_head(f"{t('ranks.steps')} {badge('simulated')}", caption, pd.DataFrame(simulated), "steps")
            cells = [
                {t("ranks.col_link"): row["link"],
                 t("ranks.col_split"): _named(row["tp"], row["pp"], t("ranks.one_card")),
                 t("ranks.col_decode"): f"{number(1000 * row['decode_step_s'])}{NO_BREAK}ms",
                 t("ranks.col_prompt"): f"{number(1000 * row['prompt_s'])}{NO_BREAK}ms",
                 t("ranks.col_reduce_share"): f"{number(100 * row['all_reduce_share'])} %"}
                for row in simulated
            ]  # fmt: skip
            st.table(pd.DataFrame(cells), hide_index=True)


def _split(row: Row) -> str:
    return _named(row["tensor_parallel"], row["pipeline_parallel"], t("ranks.one"))


def _named(tp: int, pp: int, whole: str) -> str:
    """A split by what it splits; `whole` is the name of none."""
    parts = [f"{name}{NO_BREAK}{ranks}" for name, ranks in (("TP", tp), ("PP", pp)) if ranks > 1]
    return " × ".join(parts) or whole
