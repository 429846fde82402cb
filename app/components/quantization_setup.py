"""The top of the Quantization page: which formats are candidates, and the Run button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.format_names import weights_name
from app.components.inputs import choice, several, text
from app.components.run_button import run_button
from app.state import t
from core_engine.variables import VARIABLES
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


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[Choice], None],
    on_cancel: Callable[[], None],
) -> None:
    """Draw the inputs; while a run is active Cancel stands in the place of Run."""
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


def _more(page: str) -> dict[str, Any]:
    """What holds for all candidates that it means something for."""
    columns = st.columns(5)
    found: dict[str, Any] = {}
    for column, (name, variable) in zip(
        columns, (("group", "weight_group"), ("symmetric", "weight_symmetric"), ("head", "head_weights")), strict=False
    ):
        entry = VARIABLES[variable]
        with column:
            shown = t(f"quant.{name}"), entry.choices, str(entry.default)
            found[name] = choice(page, name, *shown, _named(name), help=t(f"help.{variable}"))
    with columns[3]:
        found["dtype"] = choice(
            page, "dtype", t("quant.dtype"), DTYPES, DTYPES[0], str.upper, help=t("quant.dtype_help")
        )
    with columns[4]:
        options = [ALL_ITEMS if limit is None else str(limit) for limit in LIMITS]
        limit = choice(page, "limit", t("quant.limit"), options, ALL_ITEMS, _limit_label, help=t("quant.limit_help"))
        found["limit"] = None if limit == ALL_ITEMS else int(limit)
    with st.expander(t("quant.other_model"), icon=":material/tune:", type="compact"):
        found["model"] = text(
            page, "model", t("var.model"), str(VARIABLES["model"].default), help=t("picker.path_help")
        )
    return found


def _named(name: str) -> Callable[[str], str]:
    return str if name == "group" else lambda value: t(f"quant.{name}_{value}")


def _kv_label(name: str) -> str:
    dtype, _, variant = name.partition("-")
    return f"{dtype.upper()}, {t(f'quant.variant_{variant}')}" if variant else dtype.upper()


def _limit_label(value: str) -> str:
    return t("quant.all_items") if value == ALL_ITEMS else value
