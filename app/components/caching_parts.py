"""The parts of the Caching page: inputs, verdict, curves over the threshold, what was saved, what went stale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import caching_chart
from app.components.calculator import files, link
from app.components.inputs import choice
from app.components.run_button import run_button
from app.components.section import escape, section_head
from app.components.variable_input import variable_input
from app.state import badge, draw, mode, sentences, t, translated, words, workload_name
from experiments.caching_view import (
    REPEATS,
    CachingChoice,
    arm_rows,
    cache_command,
    curve_rows,
    default_threshold,
    lowest_of_interest,
    traffics,
)
from experiments.report.words import MISSING, number
from experiments.store import Run

KNOWN = {"no cache": "none", "exact": "exact", "exact and semantic": "both"}
Result = Mapping[str, Any]


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[CachingChoice], None],
    on_cancel: Callable[[], None],
) -> CachingChoice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        columns = st.columns([2, 1, 1, 0.9], vertical_alignment="bottom")
        with columns[0]:
            names = traffics()
            workload = choice(page, "traffic", t("caching.traffic"), names, names[0], _traffic_name)
        with columns[1]:
            repeats = choice(page, "repeats", t("caching.repeats"), [str(n) for n in REPEATS], "3", str)
        with columns[2]:
            threshold = float(variable_input(page, "threshold", "semantic_threshold", default=default_threshold()))
        found = CachingChoice(workload, int(repeats), threshold)
        with columns[3]:
            run_button(active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                       primary=primary)  # fmt: skip
        st.caption(t("caching.setup_help"))
    return found


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Result = run.result or {}
    _verdict(result)
    for pairs in result["pairs"]:
        _curves(pairs, result["threshold"])
    _saved(result)
    _stale(result)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"caching.{kind}"))
    st.markdown(f"## {t('result.export')}")
    rows = [{"language": pairs["language"], **row} for pairs in result["pairs"] for row in curve_rows(pairs, 0.0)]
    files(f"cache-{run.id}", result, rows)
    st.code(cache_command(run), language="shell", wrap_lines=True)
    link()


def _traffic_name(name: str) -> str:
    return t("caching.no_traffic") if name == "none" else workload_name(name)


def _verdict(result: Result) -> None:
    with st.container(border=True, key="verdict"):
        st.markdown(badge("measured"))
        told = [
            t(
                "caching.sentence",
                language=t(f"caching.{pairs['language']}"),
                hit=_share(pairs["chosen"]["hit"], "short_share"),
                wrong=_share(pairs["chosen"]["wrong"], "short_share"),
            )
            for pairs in result["pairs"]
        ]
        told.append(t("caching.fresh" if result["fresh"] else "caching.not_fresh"))
        with st.container(key="verdict_sentence"):
            st.markdown(escape(sentences(told)))
        half, threshold = t(f"caching.half_{result['half']}"), f"{result['threshold']:g}"
        st.caption(escape(t("caching.basis", half=half, threshold=threshold, encoder=result["encoder"])))
    for warning in result["warnings"]:
        st.warning(escape(translated(warning)))


def _curves(pairs: Mapping[str, Any], threshold: float) -> None:
    rows, language = curve_rows(pairs, lowest_of_interest(pairs)), t(f"caching.{pairs['language']}")
    at = pairs["chosen"]
    with st.container(border=True):
        title = f"{t('caching.curves', language=language)} {badge('measured')}"
        caption = t("caching.curves_caption", paraphrases=pairs["paraphrases"], near=pairs["near_misses"])
        section_head(title, caption, pd.DataFrame(rows), f"curves-{pairs['language']}")
        draw(caching_chart(rows, threshold, mode(), words("chart.")), t("caching.curves_alt", language=language))
        st.caption(escape(t("caching.ungated", hit=_share(at["hit_ungated"]), wrong=_share(at["wrong_ungated"]))))
        st.caption(escape(t("caching.crowd", hit=_share(at["crowd_hit"]), wrong=_share(at["crowd_wrong"]))))
        st.caption(escape(t("caching.stranger", wrong=_share(at["stranger_wrong"]))))
        apart = pairs["apart"]["near_miss"]
        if apart:
            told = t("list_join").join(f"{t(f'caching.apart_{reason}')} {count}" for reason, count in apart.items())
            st.caption(t("caching.apart", reasons=told))


def _saved(result: Result) -> None:
    rows = arm_rows(result)
    if not rows:
        return
    traffic = result["traffic"]
    with st.container(border=True):
        caption = t("caching.saved_caption", workload=traffic["workload"]["name"], repeats=traffic["repeats"])
        section_head(f"{t('caching.saved')} {badge('measured')}", caption, pd.DataFrame(rows), "saved")
        st.table(pd.DataFrame([_cells(row) for row in rows]), hide_index=True)
        for name, ratios in traffic["against_first"].items():
            st.caption(escape(_against(name, ratios)))


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    hits = MISSING if row["exact"] is None else t("caching.hits", exact=row["exact"], semantic=row["semantic"])
    wrong = MISSING if row["wrong"] is None else t("caching.of", count=row["wrong"], total=row["judged"])
    saved = (
        MISSING
        if row["saved_pct"] is None
        else t(
            "caching.saved_cell",
            share=number(row["saved_pct"]),
            prefill=f"{row['saved_prefill']:,}",
            decode=f"{row['saved_decode']:,}",
        )
    )
    cells = {
        "arm": t(f"caching.arm_{KNOWN[row['arm']]}"),
        "hits": hits,
        "wrong": wrong,
        "saved": saved,
        "ttft": _span(row["ttft_ms"]),
        "ttft_hit": _span(row["ttft_hit_ms"]),
        "ttft_miss": _span(row["ttft_miss_ms"]),
        "lookup": _span(row["lookup_ms"]),
        "tokens": number(row["tokens_per_s"]),
    }
    return {t(f"caching.col_{name}"): text for name, text in cells.items()}


def _against(name: str, ratios: Mapping[str, Any]) -> str:
    parts = []
    for figure, ratio in ratios.items():
        if ratio is not None:
            ends = "" if ratio["low"] is None else f" [{number(ratio['low'])}, {number(ratio['high'])}]"
            parts.append(f"{t(f'caching.figure_{figure}')} × {number(ratio['ratio'])}{ends}")
    return f"{t(f'caching.arm_{KNOWN[name]}')}{t('colon')}{t('list_join').join(parts)}"


def _stale(result: Result) -> None:
    rows = result["staleness"]
    with st.container(border=True):
        title = f"{t('caching.stale')} {badge('measured')}"
        section_head(title, t("caching.stale_caption"), pd.DataFrame(rows), "staleness")
        cells = [
            {
                t("caching.col_change"): t(f"caching.change_{row['change'].replace(' ', '_')}"),
                t("caching.col_exact"): _gave(row["exact"], row["must_hit"]),
                t("caching.col_semantic"): _gave(row["semantic"], row["must_hit"]),
            }
            for row in rows
        ]
        st.table(pd.DataFrame(cells), hide_index=True)


def _gave(hit: bool, must_hit: bool) -> str:
    if hit == must_hit:
        return t("caching.reused" if hit else "caching.computed")
    return t("caching.lost" if must_hit else "caching.old")


def _share(found: Mapping[str, Any], how: str = "share") -> str:
    shown = {name: number(100 * found[name]) for name in ("rate", "low", "high")}
    return t(f"caching.{how}", count=found["count"], total=found["total"], **shown)


def _span(value: float | None) -> str:
    return MISSING if value is None else t("caching.ms", value=number(value))
