"""Ledger & KV: how many sequences a card holds, with every term of the sum."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components import ledger_detail as detail
from app.components import ledger_parts as parts
from app.components.calculator import (
    MOST_SEQUENCES,
    MOST_TOKENS,
    calculator,
    context,
    kv_choice,
    sequences,
    tp_choice,
    weights_choice,
)
from app.components.hardware import cards, gpu_choice
from app.components.inputs import choice, exact, whole
from app.components.kv_parts import kv_page
from app.components.model_input import model_choice, model_source, spec_of, warn_assumed
from app.state import t
from experiments.calculator_commands import kv_command, ledger_command
from experiments.kv_view import kv_view, weights_known
from experiments.ledger_view import LedgerView, Surface, ledger_view, surface_of
from experiments.model_source import ModelSource
from ledger.capacity import ENGINES, Deployment
from ledger.formats import GROUP_OVERHEAD_BYTES

PAGE = "ledger"
PP = tuple(str(count) for count in (1, 2, 3, 4, 6, 8, 16))


def page() -> None:
    """Draw the page for the inputs of the address."""
    calculator(PAGE, _inputs, _figures)


def _figures(inputs: tuple[ModelSource, dict[str, Any]]) -> None:
    source, settings = inputs
    if _weights_known(source):
        _whole_ledger(source, settings)
    else:
        _cache_alone(source, settings)


def _whole_ledger(source: ModelSource, settings: dict[str, Any]) -> None:
    deployment, view = deployment_of(source, settings), _view(source, settings)
    warn_assumed(deployment.spec, view.warnings)
    parts.verdict(deployment, view)
    parts.bars(deployment, view)
    wide, narrow = st.columns([1.75, 1])
    with wide, st.container(border=True):
        parts.surface(deployment, view, _surface(source, settings))
    with narrow, st.container(border=True):
        detail.formulas(deployment, view)
    wide, narrow = st.columns([1.75, 1])
    with wide, st.container(border=True):
        detail.concurrency(deployment, view)
    with narrow, st.container(border=True):
        detail.trap(deployment, view)
    detail.weights(view)
    detail.layers_table(view.layers)
    detail.export(view, ledger_command(source, settings))


def _cache_alone(source: ModelSource, settings: dict[str, Any]) -> None:
    view = kv_view(spec_of(source), cards()[settings["gpu"]].memory_bytes, settings)
    warn_assumed(spec_of(source), view.warnings)
    kv_page(view, settings["seq_len"], settings["concurrency"], kv_command(source, settings))


def _inputs() -> tuple[ModelSource, dict[str, Any]] | None:
    """The model and the settings of the deployment; None while the model's config is not accepted."""
    first, second, third, fourth = st.columns([2.2, 2, 1.3, 1.3])
    with first:
        model = model_choice(PAGE)
    with second:
        gpu = gpu_choice(PAGE)
    with third:
        weights = weights_choice(PAGE)
    with fourth:
        kv_dtype = kv_choice(PAGE)
    first, second, third, fourth = st.columns([2.2, 2, 1.3, 1.3])
    with first:
        seq_len = context(PAGE)
    with second:
        concurrency = sequences(PAGE, "concurrency", t("ledger.concurrency"))
    with third:
        tp = tp_choice(PAGE)
    with fourth:
        engine = choice(PAGE, "engine", t("ledger.engine"), list(ENGINES), "vllm", _engine_label)
    source = model_source(PAGE, model)
    more = _more(engine)
    if source is None:
        return None
    fixed: dict[str, Any] = {"gpu": gpu, "weights": weights, "kv_dtype": kv_dtype, "engine": engine, "tp": int(tp)}
    return source, {**fixed, "seq_len": seq_len, "concurrency": concurrency, **more}


def _more(engine: str) -> dict[str, Any]:
    """What few change: exact numbers, the memory fraction, pipeline stages, block, group and step sizes."""
    fraction = ENGINES[engine].memory_fraction
    with st.expander(t("ledger.more"), icon=":material/tune:", type="compact"):
        first, second, third, fourth = st.columns(4)
        with first:
            exact(PAGE, "seq_len", t("ledger.exact_seq_len"), (1, MOST_TOKENS))
            pp = choice(PAGE, "pp", t("ledger.pp"), PP, "1", str)
        with second:
            exact(PAGE, "concurrency", t("ledger.exact_concurrency"), (1, MOST_SEQUENCES))
            block_size = whole(PAGE, "block_size", t("ledger.block_size"), 16, 1, 65_536)
        with third:
            name = f"fraction_{engine}"  # each engine has a default of its own
            percent = whole(PAGE, name, t("ledger.fraction"), round(100 * fraction), 1, 100)
            group = whole(PAGE, "kv_group", t("ledger.kv_group"), 64, 0, 65_536, help=t("ledger.kv_group_help"))
        with fourth:
            step = whole(PAGE, "step_tokens", t("ledger.step_tokens"), 8192, 1, 2**20)
    return {
        "pp": int(pp),
        "block_size": block_size,
        "memory_fraction": percent / 100,
        "kv_group_size": group,
        "max_num_batched_tokens": step,
    }


def deployment_of(source: ModelSource, settings: dict[str, Any]) -> Deployment:
    """The deployment that the inputs describe. InputError when it cannot be."""
    given = dict(settings)
    card = cards()[given.pop("gpu")]
    if given["kv_dtype"] not in GROUP_OVERHEAD_BYTES:
        given["kv_group_size"] = None
    device = "cpu" if card.memory_source == "system" else "cuda"
    return Deployment(spec_of(source), capacity_bytes=card.memory_bytes, card=card.name, device=device, **given)


@st.cache_data(max_entries=64, show_spinner=False)
def _weights_known(source: ModelSource) -> bool:
    return weights_known(spec_of(source))


@st.cache_data(max_entries=64, show_spinner=False)
def _view(source: ModelSource, settings: dict[str, Any]) -> LedgerView:
    return ledger_view(deployment_of(source, settings))


@st.cache_data(max_entries=64, show_spinner=False)
def _surface(source: ModelSource, settings: dict[str, Any]) -> Surface:
    view = _view(source, settings)
    reach = [item.max_concurrency or 0 for item in view.precisions]
    return surface_of(deployment_of(source, settings), view.kv_room_bytes, max(reach))


def _engine_label(name: str) -> str:
    return t(f"engine.{name}")
