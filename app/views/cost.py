"""Cost: what a month of a service costs, and what would cut it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components import cost_parts as parts
from app.components.calculator import calculator, kv_choice, tp_choice, weights_choice
from app.components.hardware import card_name, cards, gpu_choice
from app.components.inputs import choice, decimal, segments, whole
from app.components.lever_savings import lever_savings
from app.components.model_input import model_choice, model_source, spec_of, warn_assumed
from app.components.money import price
from app.state import store, t
from experiments.calculator_commands import cost_command
from experiments.cost_view import SOURCES, CostSetting, CostView, cost_view, measured_rates
from experiments.model_source import ModelSource
from ledger.formats import BITS
from ledger.weight_formats import WEIGHT_FORMATS

PAGE = "cost"
OFF = "off"
SHARES = {"prefix_cache": 50, "shorter_prompts": 20, "shorter_answers": 0, "answer_cache": 0, "routing": 30}
LISTED = 100


def page() -> None:
    """Draw the page for the inputs of the address."""
    calculator(PAGE, _inputs, _figures)


def _figures(inputs: tuple[ModelSource, str, CostSetting]) -> None:
    source, gpu, setting = inputs
    view = _view(source, gpu, setting)
    warn_assumed(spec_of(source))
    parts.verdict(view, setting, card_name(cards()[gpu]))
    parts.levers(view)
    lever_savings(PAGE)
    parts.arithmetic(view, setting)
    parts.why_and_trap()
    parts.export(view, cost_command(source, gpu, setting))


def _inputs() -> tuple[ModelSource, str, CostSetting] | None:
    first, second, third, fourth = st.columns([1, 1, 1, 1])
    with first:
        rate = decimal(PAGE, "rate", t("cost.rate"), 10.0, 0.001, 1e6, format="%g")
    with second:
        input_tokens = whole(PAGE, "input_tokens", t("cost.input_tokens"), 500, 1, 2**24)
    with third:
        output_tokens = whole(PAGE, "output_tokens", t("cost.output_tokens"), 500, 1, 2**24)
    with fourth:
        per_hour = price(PAGE, t("cost.price"), low=0.0, help=t("cost.price_help"))
    first, second, third, fourth, fifth = st.columns([2.4, 2, 1, 1, 0.8])
    with first:
        model = model_choice(PAGE, typed=False)
    with second:
        gpu = gpu_choice(PAGE)
    with third:
        weights = weights_choice(PAGE)
    with fourth:
        kv_dtype = kv_choice(PAGE)
    with fifth:
        tp = tp_choice(PAGE, 16)
    source = model_source(PAGE, model)
    throughput = _throughput()
    levers = _levers(throughput["source"], weights, kv_dtype, throughput["concurrency"])
    if source is None:
        return None
    fixed: dict[str, Any] = {"weights": weights, "kv_dtype": kv_dtype, "tp": int(tp), "price_per_device_hour": per_hour}
    return source, gpu, CostSetting(rate, input_tokens, output_tokens, **fixed, **throughput, levers=levers)


def _throughput() -> dict[str, Any]:
    """Where the throughput of a card is from, the objective, and how busy a card may be."""
    first, second, third, fourth = st.columns([1.7, 1.3, 1, 1])
    with first:
        source = segments(PAGE, "source", t("cost.source"), SOURCES, "bound", _source_label)
    rate = None
    with second:
        if source == "typed":
            rate = decimal(PAGE, "tokens_per_s", t("cost.tokens_per_s"), 1000.0, 0.001, 1e9, format="%g")
        elif source == "run":
            rate = _run_rate()
        else:
            concurrency = whole(PAGE, "concurrency", t("cost.concurrency"), 16, 0, 2**20, help=t("cost.zero_memory"))
    with third:
        utilisation = whole(PAGE, "utilisation", t("cost.utilisation"), 70, 1, 100, help=t("cost.utilisation_help"))
    with fourth:
        tpot_ms = decimal(PAGE, "tpot_ms", t("cost.tpot"), 0.0, 0.0, 1e6, format="%g", help=t("cost.tpot_help"))
    return {
        "source": "bound" if source != "bound" and rate is None else source,
        "tokens_per_s_per_device": rate,
        "utilisation": utilisation / 100,
        "tpot_slo_s": tpot_ms / 1000 or None,
        "concurrency": concurrency or None if source == "bound" else None,
    }


def _run_rate() -> float | None:
    """Output tokens/s that a stored run measured; None, and said, when there is none."""
    found = measured_rates(store().list_runs(limit=LISTED))
    if not found:
        st.caption(t("cost.no_runs"))
        return None
    chosen = choice(PAGE, "run", t("cost.run"), list(found), next(iter(found)), lambda key: _run_label(*found[key]))
    return found[chosen][2]


def _run_label(run: Any, arm: str, rate: float) -> str:
    what = arm or t("trace.bench")
    return t("cost.run_label", what=what, rate=f"{rate:,.4g}", id=run.id)


def _levers(source: str, weights: str, kv_dtype: str, concurrency: int | None) -> tuple[tuple[str, Any], ...]:
    """What to try; a lever at nothing is left out, and those that change a step where only a run is known."""
    found: dict[str, Any] = {}
    with st.expander(t("cost.levers_title"), icon=":material/tune:", type="compact"):
        st.caption(t("cost.levers_help"))
        columns = st.columns(4)
        for place, (name, default) in enumerate(SHARES.items()):
            with columns[place % 4]:
                found[name] = whole(PAGE, name, t(f"lever.{name}_share"), default, 0, 99) / 100
        with columns[1]:
            found["weights"] = choice(
                PAGE, "to_weights", t("lever.weights_to"), [OFF, *WEIGHT_FORMATS], "w8a8", _format_label
            )
        with columns[2]:
            found["kv_dtype"] = choice(PAGE, "to_kv", t("lever.kv_dtype_to"), [OFF, *BITS], "int8", _format_label)
        with columns[3]:
            found["concurrency"] = whole(PAGE, "to_concurrency", t("lever.concurrency_to"), 64, 0, 2**20)
    same = {"weights": weights, "kv_dtype": kv_dtype, "concurrency": concurrency}
    if source == "run":
        found = {name: found[name] for name in ("answer_cache", "routing")}
    elif concurrency is None:
        del found["concurrency"]
    return tuple((name, value) for name, value in found.items() if value not in (0, OFF) and value != same.get(name))


@st.cache_data(max_entries=64, show_spinner=False)
def _view(source: ModelSource, gpu: str, setting: CostSetting) -> CostView:
    return cost_view(spec_of(source), cards()[gpu], setting)


def _source_label(name: str) -> str:
    return t(f"cost.source_{name}")


def _format_label(name: str) -> str:
    return t("lever.off") if name == OFF else name.upper()
