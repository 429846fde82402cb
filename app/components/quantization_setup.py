"""The top of the Quantization page: which formats are candidates, and the Run button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.format_names import weights_name
from app.components.inputs import choice, several
from app.components.run_button import run_button
from app.components.variable_input import variable_input
from app.state import t
from experiments.quantization_setup import (
    DEFAULT_KV,
    DEFAULT_WEIGHTS,
    DTYPES,
    KV_CHOICES,
    LIMITS,
    WEIGHT_CHOICES,
    Choice,
)

ALL_ITEMS = "all"
# Input of this page -> its variable.
OF_THE_WEIGHTS = {"group": "weight_group", "symmetric": "weight_symmetric", "head": "head_weights"}


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[Choice], None],
    on_cancel: Callable[[], None],
) -> Choice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        weights, kv, button = st.columns([2.4, 2, 0.9], vertical_alignment="bottom")
        with weights:
            chosen_weights = several(page, "weights", t("quant.weights"), WEIGHT_CHOICES, DEFAULT_WEIGHTS, weights_name)
        with kv:
            chosen_kv = several(page, "kv", t("quant.kv"), list(KV_CHOICES), DEFAULT_KV, _kv_label)
        settings = _more(page)
        found = Choice(chosen_weights, chosen_kv, **settings)
        with button:
            run_button(
                active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                primary=primary, disabled=not (chosen_weights or chosen_kv),
            )  # fmt: skip
        if not (chosen_weights or chosen_kv):
            st.caption(t("quant.choose_one"))
        st.caption(t("quant.setup_help"))
    return found


def _more(page: str) -> dict[str, Any]:
    """What holds for all candidates that it means something for."""
    columns = st.columns(5)
    found: dict[str, Any] = {}
    for column, (name, variable) in zip(columns, OF_THE_WEIGHTS.items(), strict=False):
        with column:
            found[name] = variable_input(page, name, variable)
    with columns[3]:
        label = t("quant.dtype")
        found["dtype"] = variable_input(page, "dtype", "dtype", label=label, default=DTYPES[0], choices=DTYPES)
    with columns[4]:
        options = [ALL_ITEMS if limit is None else str(limit) for limit in LIMITS]
        limit = choice(page, "limit", t("quant.limit"), options, ALL_ITEMS, _limit_label, help=t("quant.limit_help"))
        found["limit"] = None if limit == ALL_ITEMS else int(limit)
    with st.expander(t("quant.other_model"), icon=":material/tune:", type="compact"):
        found["model"] = variable_input(page, "model", "model")
    return found


def _kv_label(name: str) -> str:
    dtype, _, variant = name.partition("-")
    return t("comma").join([dtype.upper(), *([t(f"quant.variant_{variant}")] if variant else [])])


def _limit_label(value: str) -> str:
    return t("quant.all_items") if value == ALL_ITEMS else value
