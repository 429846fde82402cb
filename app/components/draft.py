"""The experiment being set up: one spec in the session, read from the address or from an opened run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import streamlit as st

from app.components.undo import forget, note
from app.preferences import preferences
from app.state import set_address, t
from core_engine.variables import VARIABLES, Value, Variable, parse_value
from experiments.spec import DEFAULT_REPEATS, MOST_REQUESTS, CompareSpec
from experiments.spec import held_because as needed_because
from experiments.workloads import WORKLOADS
from ledger.errors import InputError

KEY = "draft"
# Two values to start from, where the usual ones (`usual_start`) would show little.
OWN_STARTS: dict[str, tuple[Value, Value]] = {
    "batching": ("static", "continuous"),
    "max_num_seqs": (2, 8),
    "max_wait_ms": (200.0, 20.0),
    "max_num_batched_tokens": (256, 64),
    "max_queue": (4096, 4),
    "rate_limit_rps": (0.0, 2.0),
    "block_size": (16, 64),
    "kv_memory_mib": (256, 64),
    "kv_dtype": ("auto", "int8"),
    "kv_protect": ("none", "outliers"),
    "kv_watermark": (0.0, 0.1),
    "model": ("embedded", "embedded"),
    "dtype": ("fp32", "bf16"),
    "weights": ("none", "as-stored"),
    "weight_group": ("64", "32"),
    "head_weights": ("16bit", "int8"),
    "threads": (1, 0),
    "kernels": ("torch", "auto"),
    "graph": ("off", "auto"),
    "micro_batches": (1, 2),
    "num_draft_tokens": (2, 4),
    "semantic_threshold": (0.95, 0.9),
    "prompt_keep": (0.7, 0.5),
    "router_small": ("quantized", "embedded"),
    "router_threshold": (-0.5, -1.0),
}


def usual_start(entry: Variable) -> tuple[Value, Value]:
    """Two values that a comparison of a variable begins with: its default and another one, "off" as the baseline."""
    if isinstance(entry.default, str):
        other = next((value for value in entry.choices if value != entry.default), entry.default)
        return (entry.default, other) if entry.default == "off" else (other, entry.default)
    most = entry.default if entry.maximum is None else entry.maximum
    larger = min(2 * entry.default or 1, most)
    return (entry.default, type(entry.default)(larger))


STARTS = {name: OWN_STARTS.get(name, usual_start(entry)) for name, entry in VARIABLES.items()}


def draft() -> dict[str, Any]:
    """The current draft, a compare spec; made from the address when the session has none."""
    if KEY not in st.session_state:
        st.session_state[KEY] = _from_address(st.query_params)
    return st.session_state[KEY]


def load(spec: Mapping[str, Any]) -> None:
    """Make the draft that of a stored run, without what was predicted of it; widgets are drawn anew."""
    found = {name: spec[name] for name in CompareSpec().to_dict() if name in spec} | {"predictions": None}
    if found.get("endpoints"):  # the picker is for the engine's variables: of two servers only the load is taken over
        plain = CompareSpec().to_dict()
        found |= {name: plain[name] for name in ("endpoints", "endpoint", "variable", "values")}
    _restore(found)
    forget(KEY)


def note_change() -> None:
    """Remember what this draw changed, so that it can be taken back."""
    note(KEY, draft(), _what_changed, _restore)


def _what_changed(before: dict[str, Any], now: dict[str, Any]) -> str:
    settings = [t(f"var.{name}") for name in VARIABLES if before["settings"].get(name) != now["settings"].get(name)]
    if before["variable"] != now["variable"]:
        return t("picker.variable")
    if before["values"] != now["values"]:
        return t(f"var.{now['variable']}")
    named = (("workload", "workload"), ("repeats", "repeats"), ("guess_pct", "your_guess"))
    return (settings or [t(f"picker.{word}") for name, word in named if before.get(name) != now.get(name)] or [""])[0]


def _restore(before: dict[str, Any]) -> None:
    st.session_state[KEY] = before
    st.session_state["draft_version"] = version() + 1


def version() -> int:
    """Part of every picker widget's key, so that a loaded draft is shown rather than the widget's old value."""
    return int(st.session_state.get("draft_version", 0))


def choose_variable(name: str) -> None:
    """Make `name` the variable; its held-equal setting is dropped."""
    current = draft()
    current["variable"], current["values"] = name, list(STARTS[name])
    current["settings"].pop(name, None)
    current["guess_pct"] = None
    st.session_state["draft_version"] = version() + 1


def held_because() -> dict[str, dict[str, Value]]:
    """Settings that a value of the draft needs: name -> {"value", "because"}; one set to the opposite stays as set."""
    current = draft()
    chosen = [*current["settings"].items(), *((current["variable"], value) for value in current["values"])]
    found = needed_because(chosen)
    return {name: item for name, item in found.items() if name not in (current["variable"], *current["settings"])}


def write_address() -> None:
    """Keep the address equal to the draft."""
    current = draft()
    set_address(
        variable=current["variable"],
        a=current["values"][0],
        b=current["values"][1],
        workload=current["workload"],
        requests=current["num_requests"],
        repeats=current["repeats"],
        set=settings_text(current["settings"]),
    )


def _from_address(params: Mapping[str, str]) -> dict[str, Any]:
    """The default experiment with what the address says; a value that is not accepted is passed over."""
    spec = CompareSpec().to_dict()
    name = params.get("variable", "batching")
    if name in VARIABLES:
        spec["variable"], spec["values"] = name, list(STARTS[name])
        for place, key in enumerate(("a", "b")):
            spec["values"][place] = value_or(name, params.get(key), spec["values"][place])
    if params.get("workload") in WORKLOADS:
        spec["workload"] = params["workload"]
    requests = params.get("requests", "")
    spec["num_requests"] = min(int(requests), MOST_REQUESTS) if requests.isdigit() and int(requests) else None
    spec["repeats"] = repeats_of(params.get("repeats", ""))
    spec["settings"] = settings_of(params.get("set", ""), but=(spec["variable"],))
    spec["price_per_device_hour"], spec["slo"] = preferences().price, preferences().slo or None
    return spec


def settings_text(settings: Mapping[str, Value]) -> str | None:
    """Settings as the address has them; None without any."""
    return ",".join(f"{name}={value}" for name, value in settings.items()) or None


def settings_of(text: str, but: Collection[str]) -> dict[str, Value]:
    """Settings of the address; unknown ones, and those of `but`, are passed over."""
    found: dict[str, Value] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name in VARIABLES and name not in but:
            found[name] = value_or(name, value, VARIABLES[name].default)
    return found


def repeats_of(text: str) -> int | str:
    """Repeats of the address, else the usual ones."""
    return int(text) if text.isdigit() and text != "0" else "auto" if text == "auto" else DEFAULT_REPEATS


def value_or(name: str, text: str | None, otherwise: Value) -> Value:
    if text is None:
        return otherwise
    try:
        return parse_value(name, text)
    except InputError:
        return otherwise
