"""Roofline: what limits a step of a model on a card, operator by operator."""

from __future__ import annotations

import streamlit as st

from app.components import roofline_parts as parts
from app.components.calculator import calculator, context, kv_choice, sequences, tp_choice, weights_choice
from app.components.hardware import cards, gpu_choice
from app.components.inputs import segments
from app.components.model_input import model_choice, model_source, spec_of, warn_assumed
from app.state import t
from experiments.model_source import ModelSource
from experiments.roofline_view import PHASES, RooflineView, StepSetting, roofline_view

PAGE = "roofline"
BOTH = "both"


def page() -> None:
    """Draw the page for the inputs of the address."""
    calculator(PAGE, _inputs, _figures)


def _figures(inputs: tuple[ModelSource, str, tuple[str, ...], StepSetting]) -> None:
    source, gpu, phases, setting = inputs
    view = _view(source, gpu, phases, setting)
    warn_assumed(spec_of(source), view.warnings)
    parts.verdict(view, setting)
    parts.roof(view)
    parts.times(view)
    parts.crossover(view, setting)
    parts.why_and_trap(view)
    parts.table(view)
    parts.export(view)


def _inputs() -> tuple[ModelSource, str, tuple[str, ...], StepSetting] | None:
    first, second, third = st.columns([2.2, 2, 1.9])
    with first:
        model = model_choice(PAGE, typed=False)
    with second:
        gpu = gpu_choice(PAGE)
    with third:
        phase = segments(PAGE, "phase", t("roofline.phase"), (BOTH, *PHASES), BOTH, _phase_label)
    first, second, third, fourth, fifth = st.columns([1.5, 1.5, 1, 1, 0.7])
    with first:
        batch = sequences(PAGE, "batch", t("roofline.batch"), 8)
    with second:
        seq_len = context(PAGE)
    with third:
        weights = weights_choice(PAGE)
    with fourth:
        kv_dtype = kv_choice(PAGE)
    with fifth:
        tp = tp_choice(PAGE, 16)
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
