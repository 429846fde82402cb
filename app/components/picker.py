"""The top of the workbench: variable, two values, workload, Run or Cancel, and what is held equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components import draft as drafts
from app.components.kernels import stand_in
from app.components.run_button import run_button
from app.components.section import escape
from app.components.undo import undo_button
from app.components.variable_input import variable_control
from app.navigation import page_of
from app.state import t, workload_name
from core_engine.variables import VARIABLES, Value, Variable, parse_value
from experiments.report.words import signed_percent
from experiments.workloads import WORKLOADS
from ledger.errors import InputError

REPEAT_CHOICES: tuple[int | str, ...] = (3, 5, 10, "auto")
HELD = "held_open"  # the box with every setting that is held equal
SHOWN_SETTINGS = ("model", "dtype", "max_num_seqs", "max_num_batched_tokens", "kv_memory_mib")


def picker(
    *, active: bool, cancelling: bool, ran: bool, on_run: Callable[[], None], on_cancel: Callable[[], None]
) -> None:
    """Draw the picker; locked while a run of this visitor is active, when Cancel stands in the place of Run."""
    current = drafts.draft()
    entry = VARIABLES[current["variable"]]
    with st.container(border=True):
        columns = st.columns([1.25, 2.2, 1.7, 0.95], vertical_alignment="bottom")
        with columns[0], st.container(key="variable_box"):
            _variable(current, active)
        with columns[1], st.container(key="arm_values"):
            for place, column in enumerate(st.columns(2, wrap=False)):
                with column:
                    _arm_value(entry, place, active)
        with columns[2]:
            _workload(current, active)
        with columns[3]:
            label = "picker.run_again" if ran else "picker.run"
            run_button(active=active, cancelling=cancelling, on_run=on_run, on_cancel=on_cancel, label=label)
        if current["values"][0] == current["values"][1]:
            st.caption(t("picker.same_values"))
        if entry.name == "graph":
            st.caption(stand_in(current["settings"]))
        _held_equal(current, active)
        if not active:
            _guess_and_repeats(current)
    drafts.note_change()
    if not active:
        undo_button(drafts.KEY)
    drafts.write_address()


def _variable(current: dict[str, Any], active: bool) -> None:
    names = list(VARIABLES)
    chosen = st.selectbox(
        t("picker.variable"),
        names,
        index=names.index(current["variable"]),
        format_func=lambda name: t(f"var.{name}"),
        disabled=active,
        key=f"variable-{drafts.version()}",
    )
    if chosen and chosen != current["variable"]:
        drafts.choose_variable(chosen)
        st.rerun()


def _arm_value(entry: Variable, place: int, active: bool) -> None:
    current = drafts.draft()
    label = t("picker.candidate" if place else "picker.baseline")
    key = f"value-{place}-{entry.name}-{drafts.version()}"
    current["values"][place] = variable_control(entry, label, current["values"][place], key, disabled=active)


def _workload(current: dict[str, Any], active: bool) -> None:
    # An opened run may have been made with a file, which stays what it is until another is chosen.
    names = list(dict.fromkeys([*WORKLOADS, current["workload"]]))
    current["workload"] = st.selectbox(
        t("picker.workload"),
        names,
        index=names.index(current["workload"]),
        format_func=lambda name: _workload_label(name, current),
        disabled=active,
        key=f"workload-{drafts.version()}",
    )


def _workload_label(name: str, current: dict[str, Any]) -> str:
    if name not in WORKLOADS:
        return workload_name(name)
    spec = WORKLOADS[name]
    count = current["num_requests"] or spec.num_requests
    rate_rps = current["rate_rps"] or spec.rate_rps
    clients = current.get("concurrency")
    key = "picker.clients" if clients else "picker.burst" if rate_rps is None else "picker.rate"
    return f"{workload_name(name)} · {t(key, count=count, rate=f'{rate_rps or 0:g}', clients=clients)}"


def _held_equal(current: dict[str, Any], active: bool) -> None:
    held = [entry for entry in VARIABLES.values() if entry.name != current["variable"]]
    needed = drafts.held_because()
    always = {*SHOWN_SETTINGS, *current["settings"], *needed}
    shown = [entry for entry in held if entry.name in always]
    chips = " ".join(f":gray-badge[{t(f'var.{entry.name}')} **{_held_text(current, entry)}**]" for entry in shown)
    title = t("picker.held_title", settings=chips, more=len(held) - len(shown))
    with st.container(key="held"):
        box = st.expander(title, icon=":material/lock:", type="compact", key=HELD, on_change="rerun")
    with box:
        st.caption(t("picker.held_help"))
        for name, item in needed.items():
            st.caption(f"**{t(f'var.{name}')}**: {t('picker.held_because', **item)}")
        if not box.open:  # two hundred inputs, which would be most of the page's time
            return
        with st.container(horizontal=True):
            for entry in held:
                with st.popover(f"{t(f'var.{entry.name}')} **{_held_text(current, entry)}**", disabled=active):
                    _held_popover(current, entry)


def _held_popover(current: dict[str, Any], entry: Variable) -> None:
    st.caption(f"`{entry.name}`  \n{t(f'help.{entry.name}')}")
    if entry.name == "graph":
        st.caption(stand_in(current["settings"]))
    key = f"held-{entry.name}-{drafts.version()}"
    value = variable_control(entry, t("picker.set_both"), _held_value(current, entry), key)
    st.caption(t("picker.default", value=entry.default))
    if value != _held_value(current, entry):
        try:
            parse_value(entry.name, value)
        except InputError as error:
            st.error(escape(str(error)))
            return
        if value == entry.default and entry.name not in drafts.held_because():
            current["settings"].pop(entry.name, None)
        else:
            current["settings"][entry.name] = value
        st.rerun()
    st.caption(t("picker.second_variable", variable=t(f"var.{current['variable']}")))
    if st.button(t("picker.make_variable"), key=f"make-{entry.name}"):
        drafts.choose_variable(entry.name)
        st.rerun()
    if entry.name in drafts.STARTS and st.button(t("picker.start_two"), key=f"two-{entry.name}"):
        from app.components.factorial_draft import begin  # the experiment of the other page, with all that it needs

        begin(current, entry.name)
        st.switch_page(page_of("factorial"))
    if st.button(t("picker.leave_it"), key=f"leave-{entry.name}"):
        st.rerun()


def _held_value(current: dict[str, Any], entry: Variable) -> Value:
    needed = drafts.held_because().get(entry.name)
    return needed["value"] if needed else current["settings"].get(entry.name, entry.default)


def _held_text(current: dict[str, Any], entry: Variable) -> str:
    unit = t(f"unit.{entry.unit}") if entry.unit else ""
    return escape(f"{_held_value(current, entry)} {unit}".strip())


def _guess_and_repeats(current: dict[str, Any]) -> None:
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    with left, st.container(key="guess_box"):
        guess = current.get("guess_pct")
        current["guess_pct"] = st.number_input(
            t("picker.guess"),
            -100.0,
            10_000.0,
            None if guess is None else float(guess),
            step=10.0,
            placeholder="%",
            format="%.0f",
            help=t("picker.guess_help"),
            key=f"guess-{drafts.version()}",
        )
    with right:
        choices = REPEAT_CHOICES if current["repeats"] in REPEAT_CHOICES else (current["repeats"], *REPEAT_CHOICES)
        current["repeats"] = st.selectbox(
            t("picker.repeats"),
            choices,
            index=choices.index(current["repeats"]),
            format_func=lambda choice: t("picker.auto") if choice == "auto" else str(choice),
            key=f"repeats-{drafts.version()}",
        )


def guess_text(guess_pct: float | None) -> str | None:
    """A guess as it is shown, None without one."""
    return None if guess_pct is None else signed_percent(guess_pct)
