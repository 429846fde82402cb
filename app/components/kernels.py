"""What computes the steps on this machine, and what stands in for CUDA Graph here, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.components.section import escape
from app.state import t, translated
from core_engine.config import EngineConfig
from core_engine.environment import cuda_is_here
from core_engine.kernels.choice import expected_with_auto
from core_engine.variables import VARIABLES, Value


@st.cache_resource(show_spinner=False, ttl=60)
def _expected() -> Mapping[str, Any]:
    return vars(expected_with_auto())


def kernels_line(found: Mapping[str, Any] | None = None) -> str:
    """Which kernels and why: of an environment or arm that says so, else of this machine with kernels=auto."""
    found = found or _expected()
    if found["kernels"] == "triton":
        return t("kernels.triton") + _captured(found.get("captured"))
    if found["kernels"] != "compiled":
        return t("kernels.torch", reason=escape(translated(found["kernels_reason"])))
    if found["vector_bits"] is None:
        return t("kernels.to_build")
    return t("kernels.compiled", instructions=found["instructions"], bits=found["vector_bits"])


def _captured(captured: Mapping[str, Any] | str | None) -> str:
    """What capturing steps took, or why there are none; nothing of a machine that has not run yet."""
    if captured is None:
        return ""
    if isinstance(captured, str):
        return " · " + t("kernels.not_captured", reason=escape(translated(captured)))
    seconds, mib = f"{captured['seconds']:.1f}", f"{captured['num_bytes'] / 2**20:.0f}"
    return " · " + t("kernels.captured", graphs=captured["graphs"], seconds=seconds, mib=mib)


def stand_in(settings: Mapping[str, Value]) -> str:
    """What does on this machine what CUDA Graph does on a GPU, under these settings of the two arms."""
    chosen = EngineConfig().settings() | dict(settings)
    on_cpu = chosen["device"] == "cpu" or (chosen["device"] == "auto" and not cuda_is_here())
    compiled = chosen["kernels"] != "torch" and _expected()["kernels"] == "compiled"
    return t("kernels.stand_in") if on_cpu and compiled else t("kernels.no_stand_in")


def ran_with(result: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Which kernels each arm really ran with, for a variable of that group; older runs do not say."""
    found = [arm.get("kernels") or {} for arm in result["arms"]]
    entry = VARIABLES.get(result["variable"])
    if entry is not None and entry.group == "kernels" and all(arm.get("kernels") for arm in found):
        lines = (f"{name}{t('colon')}{kernels_line(arm)}" for name, arm in zip(names, found, strict=True))
        st.caption("  \n".join(lines))
