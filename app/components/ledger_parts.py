"""The sections of the Ledger page. They show what experiments.ledger_view computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import capacity_chart, surface_chart
from app.components.ledger_detail import GIB, gib
from app.components.section import escape, section_head
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.ledger_view import LedgerView, Remedy, Surface
from experiments.report.words import MISSING
from ledger.capacity import Deployment


def verdict(d: Deployment, view: LedgerView) -> None:
    """Whether it fits, in words, how far it goes, and what else would make it fit."""
    chosen = view.chosen
    fits = chosen.left_bytes is None or chosen.left_bytes >= 0
    with st.container(border=True, key="verdict"):
        colour, key = ("green", "ledger.fits") if fits else ("orange", "ledger.does_not_fit")
        st.markdown(f":{colour}-badge[{t(key)}] {badge('computed')} {badge('estimated')}")
        with st.container(key="verdict_sentence"):
            st.markdown(_sentence(d, view, fits))
        st.caption(_share_line(d, view))


def _sentence(d: Deployment, view: LedgerView, fits: bool) -> str:
    chosen = view.chosen
    numbers = {"total": gib(chosen.ledger.total_bytes), "usable": gib(view.usable_bytes)}
    if fits:
        text = t("ledger.sentence_fits", **numbers, next=f"{(chosen.max_concurrency or 0) + 1:,}")
        others = [item for item in view.precisions if item.bits < chosen.bits and item.max_concurrency is not None]
        if others:
            reach = t("list_join").join(
                t("ledger.reach", name=item.kv_dtype.upper(), count=f"{item.max_concurrency:,}") for item in others
            )
            text = sentences([text, t("ledger.sentence_reach", reach=reach)])
        return text
    text = t("ledger.sentence_over", **numbers)
    if not chosen.max_concurrency:
        text = sentences([text, t("ledger.sentence_none", seq_len=f"{d.seq_len:,}")])
    if view.remedies:
        text = sentences(
            [text, t("ledger.sentence_remedies", remedies=t("ledger.or").join(map(_remedy, view.remedies)))]
        )
    else:
        text = sentences([text, t("ledger.sentence_no_remedy")])
    return text


def _remedy(remedy: Remedy) -> str:
    value = f"{remedy.value:,}" if isinstance(remedy.value, int) else remedy.value.upper()
    return t(f"ledger.remedy_{remedy.field}", value=value)


def _share_line(d: Deployment, view: LedgerView) -> str:
    ledger = view.chosen.ledger
    share = f"{100 * ledger.account('weights').bytes / ledger.total_bytes:.0f}" if ledger.total_bytes else "0"
    line = t("ledger.share_line", share=share)
    if d.tp * d.pp > 1:
        line = sentences([line, t("ledger.per_rank", ranks=d.tp * d.pp)])
    return line


def bars(d: Deployment, view: LedgerView) -> None:
    """The ledger in the chosen KV precision and in the others, against the limit."""
    with st.container(border=True):
        rows = [
            {
                "name": t("ledger.bar_name", name=item.kv_dtype.upper(), total=gib(item.ledger.total_bytes)),
                "is_chosen": item is view.chosen,
                "segments": item.segments,
                "left_bytes": item.left_bytes,
            }
            for item in view.precisions
        ]
        caption = t("ledger.bars_caption", count=f"{d.concurrency:,}", tokens=f"{d.seq_len:,}", kept=_kept_back(view))
        section_head(
            f"{t('ledger.bars')} {badge('computed')} {badge('estimated')}",
            caption,
            pd.DataFrame(_accounts(view)),
            "ledger",
        )
        capacity = view.report["capacity_bytes"]
        draw(capacity_chart(rows, view.usable_bytes, capacity, mode(), words("chart.")), t("alt.capacity"))
        with st.expander(t("ledger.accounts")):
            for account in view.report["accounts"]:
                origin = badge("computed" if account.get("provenance") != "estimated" else "estimated")
                name = t(f"ledger.account_{account['name']}")
                size = t("calc.gib", value=gib(account["bytes"]))
                st.markdown(f"**{name}** {size} {origin}  \n{escape(translated(account['how']))}")


def _kept_back(view: LedgerView) -> str:
    capacity, usable = view.report["capacity_bytes"], view.usable_bytes
    return gib(None if capacity is None or usable is None else capacity - usable)


def _accounts(view: LedgerView) -> list[dict[str, Any]]:
    """A row an account, a column a precision, GiB throughout; what is left at the end."""
    names = dict.fromkeys(account.name for item in view.precisions for account in item.ledger.accounts)
    rows = []
    for name in names:
        sizes = {
            item.kv_dtype: {a.name: a.bytes for a in item.ledger.accounts}.get(name, 0) for item in view.precisions
        }
        rows.append({t("ledger.account"): t(f"ledger.account_{name}"), **_columns(sizes)})
    totals = {item.kv_dtype: item.ledger.total_bytes for item in view.precisions}
    rows.append({t("ledger.account"): t("ledger.total"), **_columns(totals)})
    left = {item.kv_dtype: item.left_bytes for item in view.precisions}
    rows.append({t("ledger.account"): t("ledger.left"), **_columns(left)})
    return rows


def _columns(sizes: Mapping[str, int | None]) -> dict[str, Any]:
    return {
        t("ledger.column_gib", name=name.upper()): None if size is None else round(size / GIB, 4)
        for name, size in sizes.items()
    }


def surface(d: Deployment, view: LedgerView, found: Surface) -> None:
    """Context x concurrency, in the chosen precision, with the reach of all."""
    names = {item["kv_dtype"]: item["kv_dtype"].upper() for item in found.frontiers}
    length, count, size, which = (
        t(key) for key in ("calc.seq_len", "ledger.concurrency", "ledger.kv_gib", "ledger.fits_with")
    )
    rows = [
        {
            length: cell["seq_len"],
            count: cell["concurrency"],
            size: round(cell["kv_bytes"] / GIB, 4),
            which: names.get(cell["with"], MISSING),
        }
        for cell in found.cells
    ]
    title = f"{t('ledger.surface')} {badge('computed')}"
    room = gib(view.kv_room_bytes)
    caption = t("ledger.surface_caption", room=room, name=d.kv_dtype.upper())
    section_head(title, caption, pd.DataFrame(rows), "surface")
    cells = [{**cell, "with": names.get(cell["with"])} for cell in found.cells]
    frontiers = [{**item, "name": names[item["kv_dtype"]]} for item in found.frontiers]
    at = (d.seq_len, d.concurrency)
    chart = surface_chart(cells, found.lengths, found.concurrencies, frontiers, at, mode(), words("chart."))
    draw(chart, t("alt.surface"))
    st.caption(t("ledger.surface_axes"))
