"""One deployment on hardware that is not here: its inputs, and its figures, simulated."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.components.calculator import files, kv_choice, link, tp_choice, weights_choice
from app.components.hardware import cards
from app.components.inputs import choice, decimal, passed_over, whole
from app.components.money import price
from app.components.section import escape, section_head
from app.components.simulator_trust import trust
from app.components.undo import undo_button
from app.state import badge, sentences, t, translated
from core_engine.variables import KV_DTYPES
from experiments.planner.spec import CARDS_IN_A_NODE, PPS, TPS
from experiments.planner_setup import CARDS, MODEL
from experiments.report.words import number
from experiments.simulate_view import REQUESTS, Deployment, rows_of, simulated
from ledger.errors import CannotRunError, InputError
from ledger.presets import presets

MOST_REPLICAS = 64


def simulate(page: str, above: DeltaGenerator) -> None:
    """Draw the inputs and what they give; its question stands in `above`."""
    with above:
        st.title(t("plan.sim_question"), anchor=False)
        st.caption(t("plan.sim_caption"))
    with st.container(border=True):
        asked = _inputs(page)
    passed_over(page)
    undo_button(page)
    try:
        _figures(asked, _simulated(asked))
    except (InputError, CannotRunError) as error:
        st.error(t("failed.input_error", error=escape(translated(str(error)))))


@st.cache_data(max_entries=32)
def _simulated(asked: Deployment) -> dict[str, Any]:
    return simulated(asked)


def _inputs(page: str) -> Deployment:
    known = [name for name in cards() if name != "this"]
    first, second, third, fourth = st.columns([2, 2, 1.3, 1.3])
    with first:
        model = choice(page, "model", t("model.label"), list(presets()), MODEL, str)
    with second:
        gpu = choice(page, "gpu", t("calc.gpu"), known, CARDS[0], lambda name: cards()[name].label)
    with third:
        weights = weights_choice(page)
    with fourth:
        kv_dtype = kv_choice(page)
    columns = st.columns(6)
    with columns[0]:
        tp = tp_choice(page, max(TPS))
    with columns[1]:
        pp = choice(page, "pp", t("ledger.pp"), [str(n) for n in (*PPS, CARDS_IN_A_NODE)], "1", str)
    with columns[2]:
        replicas = whole(page, "replicas", t("plan.replicas"), 1, 1, MOST_REPLICAS)
    with columns[3]:
        prefill = whole(page, "prefill", t("plan.prefill_replicas"), 0, 0, MOST_REPLICAS, help=t("plan.prefill_help"))
    with columns[4]:
        seqs = whole(page, "seqs", t("plan.seqs"), 256, 1, 1024)
    with columns[5]:
        per_hour = price(page, t("plan.price"))
    load = st.columns(3)
    with load[0]:
        rate = decimal(page, "rate", t("plan.rate"), 20.0, 0.01, 100_000.0)
    with load[1]:
        prompt = whole(page, "in", t("plan.input"), 1024, 1, 32_768)
    with load[2]:
        answer = whole(page, "out", t("plan.output"), 256, 1, 4096)
    assert kv_dtype in KV_DTYPES
    return Deployment(
        model, gpu, int(tp), int(pp), replicas, prefill, weights, kv_dtype, seqs, rate, prompt, answer, per_hour
    )


def _figures(asked: Deployment, result: dict[str, Any]) -> None:
    on = result["simulated"]
    with st.container(border=True, key="verdict"):
        st.markdown(badge("simulated"))
        with st.container(key="verdict_sentence"):
            st.markdown(escape(_sentence(asked, result)))
        st.caption(t("plan.band", card=escape(on["label"]), band=number(on["error_band_pct"])))
    for warning in result["warnings"]:
        st.warning(escape(translated(warning)))
    with st.container(border=True):
        rows = rows_of(result)
        section_head(f"{t('plan.latencies')} {badge('simulated')}", t("plan.sim_table", count=REQUESTS),
                     pd.DataFrame(rows), "simulated")  # fmt: skip
        st.table(pd.DataFrame([_cells(row) for row in rows]), hide_index=True)
    trust(on)
    files("simulated", result, rows_of(result))
    link()


def _sentence(asked: Deployment, result: dict[str, Any]) -> str:
    keeps = result["requests_per_s"] is not None and result["busy_share"] is not None
    busy = 100 * result["busy_share"] if keeps else None
    tpot = result["tpot_s"]["mean"]
    told = [
        t(
            "plan.sim_sentence",
            devices=result["devices"],
            card=cards()[asked.gpu].label,
            rate=number(asked.rate_rps),
            tokens=number(result["output_tokens_per_s"]),
            ttft=number(result["ttft_s"]["p95"]),
            tpot=number(None if tpot is None else 1000 * tpot),
            cost=number(result["cost_per_million_output_tokens"]),
        ),
        t("plan.sim_busy", share=number(busy)),
    ]
    if result["failed"]:
        told.append(t("plan.sim_refused", count=result["failed"]))
    return sentences(told)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    shown = {t("plan.col_latency"): row["name"].removesuffix("_s").upper()}
    return shown | {name: f"{number(row[name])} s" for name in ("mean", "p50", "p95", "p99")} | {"n": f"{row['n']:,}"}
