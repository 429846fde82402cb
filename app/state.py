"""What every page shares: the store, the language, the colour mode and the address of the state (query parameters)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import altair as alt
import streamlit as st

from app.i18n import LANGUAGE_NAMES, catalogue, translate
from app.i18n.phrases import in_language
from app.preferences import preferences
from experiments import jobs
from experiments.store import Store
from experiments.workloads import WORKLOADS
from experiments.workloads.source import short_name

LANGUAGE_CHOICE = "language_choice"  # key of the sidebar's control
# Where a figure is from -> its mark and the colour of its badge.
MARKS = {
    "measured": ("●", "gray"),
    "computed": ("=", "gray"),
    "estimated": ("≈", "gray"),
    "assumed": ("≈", "gray"),
    "simulated": ("◌", "violet"),
}


@st.cache_resource
def store() -> Store:
    """The run store of this machine, opened once."""
    return Store()


def language() -> str:
    """The chosen language: the address first, so that a link shows the same page to everyone."""
    asked = st.query_params.get("lang")
    if asked in LANGUAGE_NAMES:
        st.session_state["language"] = asked
    chosen: str | None = st.session_state.get("language")
    return chosen or preferences().language


def choose_language(name: str) -> None:
    """Change it, before a draw: in the address and in the sidebar too."""
    st.session_state["language"] = st.session_state[LANGUAGE_CHOICE] = name
    set_address(lang=name)


def t(key: str, **values: object) -> str:
    """The text of `key` in the chosen language."""
    return translate(language(), key, **values)


def workload_name(name: str) -> str:
    """A built-in workload in the chosen language; for a file its name."""
    return t(f"workload.{name}") if name in WORKLOADS else short_name(name)


def translated(text: str) -> str:
    """Arithmetic, a warning or an error of the ledger, with its words in the chosen language."""
    return in_language(language(), text)


def sentences(parts: Iterable[str]) -> str:
    """Sentences one after another, as the language sets them: with a space between, or none."""
    return reduce(lambda first, then: t("two_sentences", first=first, then=then), parts)


def words(prefix: str = "") -> Mapping[str, str]:
    """All texts of the chosen language; with a prefix those under it, on top of the shared ones, without the prefix."""
    texts = catalogue(language())
    own = {key.removeprefix(prefix): text for key, text in texts.items() if prefix and key.startswith(prefix)}
    return {**texts, **own}


def mode() -> str:
    """light or dark, as the browser shows the page."""
    kind = st.context.theme.type
    return kind if kind in ("light", "dark") else "light"


def set_address(**values: Any) -> None:
    """Write the state into the address; None removes a parameter."""
    for name, value in values.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)


def draw(chart: alt.LayerChart, description: str, **more: Any) -> None:
    """Show a chart across its container, with a description for readers who cannot see it; `more` as Streamlit's.

    Its specification is not validated again, as `st.altair_chart` would: tests do that, and it takes long. Rows stand
    in the layers: under a name, Streamlit would make a data frame and Arrow of every few of them, which takes longer.
    """
    spec = chart.to_dict(validate=False)
    named = spec.pop("datasets", {})
    for layer in spec["layer"]:
        if "name" in layer.get("data", {}):
            layer["data"] = {"values": named[layer["data"]["name"]]}
    st.vega_lite_chart(spec=spec, theme=None, width="stretch", alt=description, **more)


def badge(provenance: str) -> str:
    """The label of a figure's origin, as markdown."""
    mark, colour = MARKS[provenance]
    return f":{colour}-badge[{mark} {t(provenance)}]"


def heading(text: str, provenance: str, caption: str = "") -> None:
    """A section's title with its badge, and a caption below."""
    st.markdown(f"## {text} {badge(provenance)}")
    if caption:
        st.caption(caption)


def error_text(error: str | None) -> str:
    """The reason of a failed run, in the reader's language where it is one of ours."""
    text = error or ""
    if not text.startswith(jobs.ENDED):
        return text
    return text.replace(jobs.ENDED, t("failed.ended"), 1).replace(jobs.NO_MEMORY, t("failed.no_memory"), 1)
