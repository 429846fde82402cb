"""Roofline: what limits a step of a model on a card, operator by operator."""

from __future__ import annotations

import streamlit as st

from app.components import roofline_parts as parts
from app.components.hardware import cards, gpu_choice
from app.components.inputs import choice, rung, segments
from app.components.model_input import model_choice, model_source, spec_of, warn_assumed
from app.components.section import escape
from app.state import t
from experiments.ledger_view import LADDER
from experiments.model_source import ModelSource
from experiments.roofline_view import PHASES, RooflineView, StepSetting, roofline_view
from ledger.errors import InputError
from ledger.formats import BITS
from ledger.weight_formats import AS_STORED, WEIGHT_FORMATS

PAGE = "roofline"
BOTH = "both"
MOST_TOKENS, MOST_SEQUENCES = 2**24, 2**16
CONTEXTS = tuple(rung for rung in LADDER if 128 <= rung <= 2**20)
BATCHES = (1, *(rung for rung in LADDER if 2 <= rung <= 4096))
TP = tuple(str(2**power) for power in range(5))


def page() -> None:
    """Draw the page for the inputs of the address."""
    st.title(t("roofline.question"), anchor=False)
    st.caption(t("roofline.caption"))
    with st.container(border=True):
        inputs = _inputs()
    if inputs is None:
        return
    source, gpu, phases, setting = inputs
    try:
        view = _view(source, gpu, phases, setting)
    except InputError as error:
        st.error(t("failed.input_error", error=escape(str(error))))
        return
    warn_assumed(spec_of(source), view.warnings)
    parts.verdict(view, setting)
    parts.roof(view)
    parts.times(view)
    parts.crossover(view, setting)
    parts.why_and_trap(view)
    parts.table(view)
    parts.export(view)


def _inputs() -> tuple[ModelSource, str, tuple[str, ...], StepSetting] | None:
    first, second, third = st.columns([2.2, 2, 1.9], vertical_alignment="bottom")
    with first:
        model = model_choice(PAGE, typed=False)
    with second:
        gpu = gpu_choice(PAGE)
    with third:
        phase = segments(PAGE, "phase", t("roofline.phase"), (BOTH, *PHASES), BOTH, _phase_label)
    first, second, third, fourth, fifth = st.columns([1.5, 1.5, 1, 1, 0.7], vertical_alignment="bottom")
    with first:
        batch = rung(PAGE, "batch", t("roofline.batch"), 8, BATCHES, (1, MOST_SEQUENCES), _sequences)
    with second:
        seq_len = rung(PAGE, "seq_len", t("roofline.seq_len"), 4096, CONTEXTS, (1, MOST_TOKENS), _tokens)
    with third:
        names = [AS_STORED, *WEIGHT_FORMATS]
        weights = choice(PAGE, "weights", t("ledger.weights_label"), names, "bf16", _format_label)
    with fourth:
        kv_dtype = choice(PAGE, "kv_dtype", t("ledger.kv_label"), list(BITS), "bf16", str.upper)
    with fifth:
        tp = choice(PAGE, "tp", t("ledger.tp"), TP, "1", str)
    source = model_source(PAGE, model)
    if source is None:
        return None
    phases = PHASES if phase == BOTH else (phase,)
    return source, gpu, phases, StepSetting(batch, seq_len, weights, kv_dtype, int(tp))


@st.cache_data(max_entries=64, show_spinner=False)
def _view(source: ModelSource, gpu: str, phases: tuple[str, ...], setting: StepSetting) -> RooflineView:
    return roofline_view(spec_of(source), cards()[gpu], phases, setting)


def _phase_label(name: str) -> str:
    return t(f"roofline.phase_{name}")


def _format_label(name: str) -> str:
    return t("ledger.as_stored") if name == AS_STORED else name.upper()


def _tokens(count: int) -> str:
    return t("ledger.tokens", count=f"{count:,}")


def _sequences(count: int) -> str:
    return t("ledger.sequences", count=f"{count:,}")
