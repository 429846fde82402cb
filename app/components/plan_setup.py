"""The top of the plan: model, cards with their prices, traffic and objectives, and the Run button."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from app.components.hardware import cards
from app.components.inputs import choice, decimal, several, switch, whole
from app.components.money import price
from app.components.run_button import run_button
from app.state import t
from experiments.planner.candidates import KV_DTYPES, WEIGHTS
from experiments.planner.spec import MOST_DEVICES, MOST_GPUS
from experiments.planner_setup import ANY, CARDS, MODEL, PlanChoice
from ledger.device_profile import profiled_cards
from ledger.presets import presets

MOST_TOKENS = 131_072


def setup(
    page: str,
    *,
    active: bool,
    cancelling: bool,
    primary: bool,
    on_run: Callable[[PlanChoice], None],
    on_cancel: Callable[[], None],
) -> PlanChoice:
    """Draw the inputs and return what they are left at; while a run is active Cancel stands in the place of Run."""
    with st.container(border=True):
        left, weights_at, kv_at, button = st.columns([1.6, 0.9, 0.9, 0.9], vertical_alignment="bottom")
        with left:
            model = choice(page, "plan_model", t("model.label"), list(presets()), MODEL, str)
        with weights_at:
            weights = choice(page, "plan_weights", t("plan.weights"), [ANY, *WEIGHTS], ANY, _format)
        with kv_at:
            kv_dtype = choice(page, "plan_kv", t("plan.kv"), [ANY, *KV_DTYPES], ANY, _format)
        found = replace(_rest(page, model), weights=weights, kv_dtype=kv_dtype)
        with button:
            run_button(
                active=active, cancelling=cancelling, on_run=lambda: on_run(found), on_cancel=on_cancel,
                primary=primary, disabled=not 0 < len(found.gpus) <= MOST_GPUS, label="plan.run",
            )  # fmt: skip
        st.caption(t("plan.setup_help"))
    return found


def _format(name: str) -> str:
    return t("plan.any_format") if name == ANY else name.upper()


def _rest(page: str, model: str) -> PlanChoice:
    known = cards()
    gpus = several(page, "cards", t("plan.cards"), _listed(page), CARDS, lambda name: known[name].label)
    prices = {}
    if gpus:
        shown = gpus[:MOST_GPUS]
        for column, name in zip(st.columns(len(shown)), shown, strict=True):
            with column:
                label = t("plan.price_of", card=known[name].label)
                prices[name] = price(page, label, f"price_{name}")
    first, second, third, most_at = st.columns(4)
    fourth, fifth, sixth, apart = st.columns(4, vertical_alignment="bottom")
    with first:
        rate = decimal(page, "rate", t("plan.rate"), 20.0, 0.01, 100_000.0)
    with second:
        prompt = whole(page, "in", t("plan.input"), 1024, 1, MOST_TOKENS)
    with third:
        answer = whole(page, "out", t("plan.output"), 256, 1, MOST_TOKENS)
    with fourth:
        ttft = decimal(page, "ttft", t("plan.ttft"), 1.0, 0.0, 1000.0, help=t("plan.limit_help"))
    with fifth:
        tpot = decimal(page, "tpot", t("plan.tpot"), 40.0, 0.0, 10_000.0, help=t("plan.limit_help"))
    with sixth:
        itl = decimal(page, "itl", t("plan.itl"), 0.0, 0.0, 10_000.0, help=t("plan.itl_help"))
    with most_at:
        most = whole(page, "most", t("plan.most"), 0, 0, MOST_DEVICES, help=t("plan.most_help"))
    with apart:
        without = switch(page, "nopd", t("plan.nopd"))
    return PlanChoice(model, gpus, rate, prompt, answer, ttft, tpot, most, prices, not without, itl)


def _listed(page: str) -> list[str]:
    """The cards with figures of their own, and with the switch all others of the catalogue."""
    known = [name for name in cards() if name != "this"]
    if switch(page, "allcards", t("plan.all_cards"), help=t("plan.all_cards_help")):
        return known
    return [name for name in known if name in profiled_cards()]
