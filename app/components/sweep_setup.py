"""The top of the Load page: workload, range of loads, objectives, price, and the Run button."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.components.inputs import choice, decimal, text
from app.components.money import price
from app.components.objectives import objectives
from app.components.run_button import run_button
from app.state import t, workload_name
from experiments.sweep_setup import ANSWERS, OWN, RANGES, REPEATS, WORKLOADS, Choice


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[Choice], None],
    on_cancel: Callable[[], None],
) -> Choice:
    """Draw the inputs and return what they are left at; while a sweep is active Cancel stands in the place of Run."""
    with st.container(border=True):
        first, second, third, button = st.columns([1.2, 1.6, 1.9, 0.9], vertical_alignment="bottom")
        with first:
            workload = choice(page, "workload", t("picker.workload"), WORKLOADS, WORKLOADS[0], workload_name)
        with second:
            over = choice(page, "over", t("load.over"), [*RANGES, OWN], "clients_8", _range, help=t("load.over_help"))
        with third:
            slo = objectives(page, "load.slo", "load.slo_help")
        typed = text(page, "range", t("load.typed"), "rate=0.5,1,2", help=t("load.typed_help")) if over == OWN else ""
        columns = st.columns(4)
        with columns[0]:
            answer = choice(page, "tokens", t("load.tokens"), [str(n) for n in ANSWERS], "32", str)
        with columns[1]:
            repeats = choice(page, "repeats", t("picker.repeats"), [str(n) for n in REPEATS], "1", str,
                             help=t("load.repeats_help"))  # fmt: skip
        with columns[2]:
            demand = decimal(page, "demand", t("load.demand"), 0.0, 0.0, 1e6, help=t("load.demand_help"))
        with columns[3]:
            per_hour = price(page, t("load.price"))
        found = Choice(workload, over, typed, slo, int(repeats), int(answer), per_hour, demand)
        with button:
            run_button(
                active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel, primary=primary
            )
        st.caption(t("load.setup_help"))
    return found


def _range(name: str) -> str:
    return t(f"load.range_{name}")
