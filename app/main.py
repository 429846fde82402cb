"""The workbench's entry: navigation, language and device. Run with `trilemma ui`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.components.hardware import ceilings
from app.components.kernels import kernels_line
from app.components.money import price_text
from app.i18n import LANGUAGE_NAMES
from app.loading import page_is_drawn
from app.navigation import groups, nearest, page_of
from app.preferences import preferences
from app.state import LANGUAGE_CHOICE, choose_language, language, mode, set_address, t, take_language
from app.theme import TOKENS
from core_engine.environment import cpu_name, resolve_threads
from experiments.version import version

SAY_LANGUAGE = {
    "en": "<script>document.documentElement.lang = 'en'</script>",
    "zh": "<script>document.documentElement.lang = 'zh-CN'</script>",
}
STYLE = Path(__file__).parent / "style.css"
LOGO = Path(__file__).parent / "logo.svg"
ICON = (
    Path(__file__).parent / "icon.svg"
)  # a file of ours: a browser fetches Material icons for a tab from the internet


def sidebar() -> None:
    """Language, device and its measured ceilings, under the navigation."""
    with st.sidebar:
        st.session_state.setdefault(LANGUAGE_CHOICE, language())
        chosen = st.segmented_control(
            t("nav.language"), list(LANGUAGE_NAMES), format_func=LANGUAGE_NAMES.__getitem__, required=True,
            key=LANGUAGE_CHOICE, on_change=_take_language, width="stretch",
        )  # fmt: skip
        if chosen != preferences().language:
            set_address(lang=chosen)  # another page of the navigation drops it
        device = t("nav.device_line", cpu=cpu_name(), threads=resolve_threads(0))
        lines = [
            f"{t('nav.device')}{t('colon')}{device}",
            kernels_line(),
            t("nav.assumed_price", price=price_text()),
            t("nav.version", version=version()),
        ]
        st.caption("  \n".join(lines))
        ceilings()


def _take_language() -> None:
    choose_language(st.session_state[LANGUAGE_CHOICE])


def _point_to(meant: str | None) -> None:
    """The way to the page that a misspelt address most likely means."""
    if meant is not None:
        st.warning(t("nav.did_you_mean", page=t(f"nav.{meant}")))
        st.page_link(page_of(meant))


def say_language() -> None:
    """Tell the browser the page's language: screen readers pronounce by it, and Chinese gets its own form of glyphs."""
    with st.container(key="page_language"):
        st.html(SAY_LANGUAGE[language()], unsafe_allow_javascript=True)


def main() -> None:
    """Draw the chosen page and what stands beside it."""
    take_language()
    st.set_page_config(page_title="Trilemma", page_icon=str(ICON), layout="wide")
    st.html(f"<style>{STYLE.read_text('utf-8').replace('ACCENT', TOKENS[mode()]['cand'])}</style>")
    say_language()
    st.logo(LOGO.read_text("utf-8").replace("currentColor", TOKENS[mode()]["text"]), size="large")
    chosen = st.navigation(groups(), expanded=True)
    sidebar()
    _point_to(nearest(st.context.url or ""))
    chosen.run()
    page_is_drawn()


main()
