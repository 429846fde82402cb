"""The 2 x 2 experiment being set up: one spec in the session, begun anew or from the Workbench's comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.components.draft import STARTS, repeats_of, settings_of, settings_text, value_or
from app.components.undo import forget, note
from app.preferences import preferences
from app.state import set_address, t
from experiments.factorial import FactorialSpec
from experiments.workloads import WORKLOADS

KEY = "two-draft"
LABELS = ("two.first", "two.second")
ADDRESS = (("x", "x0", "x1"), ("y", "y0", "y1"))  # parameters of a variable and its two values


def draft() -> dict[str, Any]:
    """The experiment being set up, a factorial spec; the default one when the session has none."""
    if KEY not in st.session_state:
        st.session_state[KEY] = _from_address(st.query_params)
    found: dict[str, Any] = st.session_state[KEY]
    return found


def differs_from(spec: Mapping[str, Any]) -> bool:
    """Whether the draft would measure something else than a run's spec."""
    return any(draft()[name] != spec.get(name) for name in ("factors", "workload", "settings"))


def begin(comparison: dict[str, Any], second: str) -> None:
    """Make the draft a comparison's variable crossed with `second`; its workload and settings are kept."""
    spec = FactorialSpec().to_dict()
    kept = {name: value for name, value in comparison.items() if name in spec}
    settings = {name: value for name, value in comparison["settings"].items() if name != second}
    factors = [[comparison["variable"], list(comparison["values"])], [second, list(STARTS[second])]]
    st.session_state[KEY] = {**spec, **kept, "settings": settings, "factors": factors}
    st.session_state["two-version"] = version() + 1
    forget(KEY)


def note_change() -> None:
    """Remember what this draw changed, so that it can be taken back."""
    note(KEY, draft(), _what_changed, _restore)


def write_address() -> None:
    """Keep the address equal to the draft."""
    current = draft()
    factors = {
        key: value
        for (name, values), keys in zip(current["factors"], ADDRESS, strict=True)
        for key, value in zip(keys, (name, *values), strict=True)
    }
    set_address(**factors, workload=current["workload"], repeats=current["repeats"],
                set=settings_text(current["settings"]))  # fmt: skip


def _from_address(params: Mapping[str, str]) -> dict[str, Any]:
    """The default experiment with what the address says; a value that is not accepted is passed over."""
    spec = FactorialSpec().to_dict()
    for place, (key, *keys) in enumerate(ADDRESS):
        name = params.get(key, "")
        if name in STARTS and name != spec["factors"][1 - place][0]:
            values = [value_or(name, params.get(one), usual) for one, usual in zip(keys, STARTS[name], strict=True)]
            spec["factors"][place] = [name, values]
    if params.get("workload") in WORKLOADS:
        spec["workload"] = params["workload"]
    spec["repeats"] = repeats_of(params.get("repeats", ""))
    spec["settings"] = settings_of(params.get("set", ""), but=[name for name, _ in spec["factors"]])
    spec["price_per_device_hour"], spec["slo"] = preferences().price, preferences().slo or None
    return spec


def _what_changed(before: dict[str, Any], now: dict[str, Any]) -> str:
    places = [place for place in (0, 1) if before["factors"][place] != now["factors"][place]]
    if places:
        return t(LABELS[places[0]])
    return t("picker.workload" if before["workload"] != now["workload"] else "picker.repeats")


def _restore(before: dict[str, Any]) -> None:
    st.session_state[KEY] = before
    st.session_state["two-version"] = version() + 1


def version() -> int:
    """Part of every widget's key, so that a new draft is shown rather than the widget's old value."""
    return int(st.session_state.get("two-version", 0))
