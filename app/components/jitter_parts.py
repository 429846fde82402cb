"""Prefill and decode apart: gaps between tokens while long prompts arrive, mixed, chunked and in two processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.charts import jitter_chart
from app.components.calculator import files, link
from app.components.inputs import choice, several
from app.components.report_files import report_files
from app.components.run_button import run_button
from app.components.run_words import arm_name
from app.components.section import NO_BREAK, escape, section_head
from app.state import badge, draw, mode, sentences, t, translated, words
from experiments.jitter_view import (
    PLACES,
    REPEATS,
    JitterChoice,
    against_first,
    course,
    default_arms,
    first,
    is_decided,
    steadiest,
)
from experiments.report.words import MISSING, number
from experiments.store import Run

Arm = Mapping[str, Any]


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[JitterChoice], None],
    on_cancel: Callable[[], None],
) -> JitterChoice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        left, middle, button = st.columns([3, 1, 1], vertical_alignment="bottom")
        with left:
            arms = several(page, "arms", t("apart.arms"), default_arms(), PLACES, arm_name)
        with middle:
            repeats = choice(page, "apart_repeats", t("apart.repeats"), [str(n) for n in REPEATS], "3", str)
        found = JitterChoice(arms, int(repeats))
        with button:
            run_button(active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                       primary=primary, disabled=not arms)  # fmt: skip
        st.caption(t("apart.setup_help"))
    return found


def results(run: Run) -> None:
    """Draw everything below the box of stored runs."""
    result: Mapping[str, Any] = run.result or {}
    _verdict(result)
    _course(result)
    _table(result)
    for column, kind in zip(st.columns(2, border=True), ("why", "trap"), strict=True):
        with column:
            st.markdown(f"## {t(f'result.{kind}')}")
            st.markdown(t(f"apart.{kind}"))
    st.markdown(f"## {t('result.export')}")
    report_files(run)
    files(f"jitter-{run.id}", result, [{"arm": arm["name"], **arm["figures"]} for arm in result["arms"]])
    link()


def _verdict(result: Mapping[str, Any]) -> None:
    best, base = steadiest(result), first(result)
    with st.container(border=True, key="verdict"):
        st.markdown(badge("measured"))
        with st.container(key="verdict_sentence"):
            if best is None:
                st.markdown(t("apart.no_gaps"))
            elif best["name"] == base["name"]:
                st.markdown(escape(t("apart.first_is_best", arm=arm_name(base["name"]), gap=_ms(base, "itl_p99_s"))))
            else:
                st.markdown(escape(_sentence(result, best, base)))
        for arm in result["arms"][1:]:
            st.caption(escape(_against(result, arm)))
        st.caption(t("apart.basis", repeats=result["repeats"], workload=result["workload"]["name"],
                     threads=base["threads"] or MISSING))  # fmt: skip
    for warning in result["warnings"]:
        st.warning(escape(translated(warning)))


def _sentence(result: Mapping[str, Any], best: Arm, base: Arm) -> str:
    decided = is_decided(against_first(result, best["name"], "itl_p99_s"))
    told = [
        t(
            "apart.sentence",
            arm=arm_name(best["name"]),
            gap=_ms(best, "itl_p99_s"),
            base=arm_name(base["name"]),
            base_gap=_ms(base, "itl_p99_s"),
        )
    ]
    return sentences(told if decided else [*told, t("apart.undecided")])


def _against(result: Mapping[str, Any], arm: Arm) -> str:
    """An arm's ratios to the first one, each with its interval."""
    parts = []
    for figure in ("itl_p99_s", "ttft_p95_s"):
        ratio = against_first(result, arm["name"], figure)
        if ratio is not None:
            ends = "" if ratio["low"] is None else f" [{number(ratio['low'])}, {number(ratio['high'])}]"
            parts.append(f"{t(f'apart.figure_{figure}')} ×{NO_BREAK}{number(ratio['ratio'])}{ends}")
    tokens = number(arm["figures"]["output_tokens_per_s"])
    parts.append(t("apart.tokens", value=tokens))
    return f"{arm_name(arm['name'])}{t('colon')}{t('list_join').join(parts)}"


def _course(result: Mapping[str, Any]) -> None:
    rows = course(result)
    names = {arm["name"]: arm_name(arm["name"]) for arm in result["arms"]}
    with st.container(border=True):
        section_head(
            f"{t('apart.course')} {badge('measured')}", t("apart.course_caption"), pd.DataFrame(rows), "course"
        )
        draw(jitter_chart(rows, names, mode(), words("chart.")), t("apart.course_alt"))


def _table(result: Mapping[str, Any]) -> None:
    with st.container(border=True):
        frame = pd.DataFrame([{"arm": arm["name"], **arm["figures"]} for arm in result["arms"]])
        section_head(f"{t('apart.table')} {badge('measured')}", t("apart.table_caption"), frame, "jitter")
        with st.container(key="arms_table"):
            st.table(pd.DataFrame([_cells(arm) for arm in result["arms"]]), hide_index=True)
        for arm in result["arms"]:
            moved = arm["transfers"]
            if moved is not None and moved.get("transfer_s"):
                span = moved["transfer_s"]["p50"]
                st.caption(t("apart.moved", arm=arm_name(arm["name"]),
                             span=number(None if span is None else 1000 * span)))  # fmt: skip


def _cells(arm: Arm) -> dict[str, str]:
    figures = arm["figures"]
    cells = {
        "arm": arm_name(arm["name"]),
        "itl": _ms(arm, "itl_p99_s"),
        "beside": _ms(arm, "beside_p99_s"),
        "alone": _ms(arm, "alone_p99_s"),
        "gap": _ms(arm, "first_gap_p95_s"),
        "ttft": f"{number(figures['ttft_p95_s'])}{NO_BREAK}s",
        "tokens": number(figures["output_tokens_per_s"]),
        "refused": number(figures["refused"]),
    }
    return {t(f"apart.col_{name}"): text for name, text in cells.items()}


def _ms(arm: Arm, figure: str) -> str:
    value = arm["figures"][figure]
    return MISSING if value is None else f"{number(1000 * value)}{NO_BREAK}ms"
