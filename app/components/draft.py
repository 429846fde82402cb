"""The experiment being set up: one spec in the session, read from the address or from an opened run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.state import set_address
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
    st.session_state[KEY] = found
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
        set=",".join(f"{name}={value}" for name, value in current["settings"].items()) or None,
    )


def _from_address(params: Mapping[str, str]) -> dict[str, Any]:
    """The default experiment with what the address says; a value that is not accepted is passed over."""
    spec = CompareSpec().to_dict()
    name = params.get("variable", "batching")
    if name in VARIABLES:
        spec["variable"], spec["values"] = name, list(STARTS[name])
        for place, key in enumerate(("a", "b")):
            spec["values"][place] = _value(name, params.get(key), spec["values"][place])
    if params.get("workload") in WORKLOADS:
        spec["workload"] = params["workload"]
    requests = params.get("requests", "")
    spec["num_requests"] = min(int(requests), MOST_REQUESTS) if requests.isdigit() and int(requests) else None
    repeats = params.get("repeats", "")
    spec["repeats"] = (
        int(repeats) if repeats.isdigit() and repeats != "0" else "auto" if repeats == "auto" else DEFAULT_REPEATS
    )
    for text in filter(None, params.get("set", "").split(",")):
        key, _, value = text.partition("=")
        if key in VARIABLES and key != spec["variable"]:
            spec["settings"][key] = _value(key, value, VARIABLES[key].default)
    return spec


def _value(name: str, text: str | None, otherwise: Value) -> Value:
    if text is None:
        return otherwise
    try:
        return parse_value(name, text)
    except InputError:
        return otherwise
