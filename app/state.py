"""What every page shares: the store, the language, the colour mode and the address of the state (query parameters)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.i18n import LANGUAGE_NAMES, catalogue, translate
from app.i18n.phrases import in_language
from app.preferences import preferences
from experiments import jobs
from experiments.store import Store
from experiments.workloads import WORKLOADS
from experiments.workloads.source import short_name

if TYPE_CHECKING:  # a page without charts is drawn before their library is loaded
    import altair as alt

    from app.charts import Stack

LANGUAGE = "language"  # of this session, as the last whole draw began
LANGUAGE_CHOICE = "language_choice"  # key of the sidebar's control
# Where a figure is from -> its mark and the colour of its badge.
MARKS = {
    "measured": ("●", "gray"),
    "computed": ("=", "gray"),
    "estimated": ("≈", "gray"),
    "assumed": ("≈", "gray"),
    "given": ("·", "gray"),
    "simulated": ("◌", "violet"),
}


@st.cache_resource
def store() -> Store:
    """The run store of this machine, opened once."""
    return Store()


def take_language() -> str:
    """The language of the draw that begins: the address first, so that a link shows the same page to everyone."""
    asked = st.query_params.get("lang")
    chosen: str = asked if asked in LANGUAGE_NAMES else st.session_state.get(LANGUAGE) or preferences().language
    st.session_state[LANGUAGE] = chosen
    return chosen


def language() -> str:
    """The chosen language. Asked for every text of a page, so that nothing but the session is looked into."""
    chosen: str | None = st.session_state.get(LANGUAGE)
    return chosen or take_language()


def choose_language(name: str) -> None:
    """Change it, before a draw: in the address and in the sidebar too."""
    st.session_state[LANGUAGE] = st.session_state[LANGUAGE_CHOICE] = name
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
    return _words(language(), prefix)


@cache
def _words(lang: str, prefix: str) -> Mapping[str, str]:
    texts = catalogue(lang)
    own = {key.removeprefix(prefix): text for key, text in texts.items() if prefix and key.startswith(prefix)}
    return MappingProxyType({**texts, **own})


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


def draw(chart: alt.LayerChart | Stack, description: str, **more: Any) -> None:
    """Show a chart across its container, with a description for readers who cannot see it; `more` as Streamlit's.

    Its specification is not validated again, as `st.altair_chart` would: tests do that, and it takes long. Rows stand
    in the layers: under a name, Streamlit would make a data frame and Arrow of every few of them, which takes longer.
    """
    st.vega_lite_chart(spec=chart.to_dict(validate=False), theme=None, width="stretch", alt=description, **more)


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
