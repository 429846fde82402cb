"""Settings: what pages start from on this machine, where its data is, what computes, the tour, and versions."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

import streamlit as st

from app.components.calibrations import calibrations
from app.components.hardware import ceilings
from app.components.kernels import kernels_line
from app.components.objectives import EXAMPLE
from app.components.section import escape
from app.components.tour import show_tour
from app.components.undo import remember, undo_button
from app.i18n import LANGUAGE_NAMES
from app.navigation import page_of
from app.preferences import LEAST_PRICE, LONGEST_CURRENCY, MOST_PRICE, prefer, preferences, preferences_path
from app.state import choose_language, mode, store, t, translated
from core_engine.environment import cpu_name, resolve_threads
from experiments.report.words import MISSING
from experiments.store.store import data_home
from experiments.version import version
from ledger.errors import CannotRunError, InputError

PAGE = "settings"
CURRENCY = "USD"  # an example

PACKAGES = ("torch", "streamlit", "altair", "numpy")
# What a key does -> the key, as a reader presses it.
KEYS = {"tab": "Tab, Shift+Tab", "space": "Space, Enter", "run": "Ctrl+Enter", "undo": "Alt+Z", "escape": "Esc"}


def page() -> None:
    """Draw it."""
    st.title(t("settings.question"), anchor=False)
    st.caption(t("settings.caption"))
    with st.container(border=True):
        _starts()
    undo_button(PAGE)
    _said()
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown(f"## {t('settings.appearance')}\n\n{t('settings.theme', mode=t(f'settings.mode_{mode()}'))}")
    with right, st.container(border=True, height="stretch"):
        st.markdown(f"## {t('settings.tour')}\n\n{t('settings.tour_text')}")
        if st.button(t("settings.show_tour"), icon=":material/explore:", key="show-tour"):
            show_tour()
            st.switch_page(page_of("workbench"))
    with st.container(border=True):
        _data()
    with st.container(border=True):
        _device()
    with st.container(border=True):
        calibrations()
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown(f"## {t('settings.keyboard')}")
        st.table([{t("settings.key"): f"`{key}`", t("settings.does"): t(f"settings.key_{name}")}
                  for name, key in KEYS.items()])  # fmt: skip
    with right, st.container(border=True, height="stretch"):
        _about()


def _starts() -> None:
    """The four values that inputs of other pages start from."""
    st.markdown(f"## {t('settings.starts')}")
    first, second, third, fourth = st.columns([1.4, 1, 1, 2])
    with first:
        key, now, take = _kept("language")
        st.segmented_control(t("nav.language"), list(LANGUAGE_NAMES), default=now, required=True, key=key,
                             format_func=LANGUAGE_NAMES.__getitem__, on_change=take, width="stretch")  # fmt: skip
    with second:
        key, now, take = _kept("price")
        st.number_input(t("settings.price"), LEAST_PRICE, MOST_PRICE, now, format="%g", key=key, on_change=take)
    with third:
        key, now, take = _kept("currency")
        st.text_input(t("settings.currency"), now, max_chars=LONGEST_CURRENCY, placeholder=CURRENCY, key=key,
                      help=t("settings.currency_help"), on_change=take)  # fmt: skip
    with fourth:
        key, now, take = _kept("slo")
        st.text_input(t("settings.slo"), now, placeholder=EXAMPLE, help=t("load.slo_help"), key=key,
                      on_change=take)  # fmt: skip
    st.caption(t("settings.starts_help"))


def _kept(name: str) -> tuple[str, Any, Callable[[], None]]:
    """An input's key, which changes with what is kept, its value, and what keeps another one."""
    before = getattr(preferences(), name)
    key = f"{PAGE}-{name}-{before}"

    def take() -> None:
        given = st.session_state[key]
        if _keep(name, given.strip() if isinstance(given, str) else given):
            remember(PAGE, t(f"settings.{name}"), lambda: _keep(name, before))

    return key, before, take


def _keep(name: str, value: object) -> bool:
    """Whether it holds now; what was wrong is one line of the next draw."""
    try:
        prefer(**{name: value})
    except (InputError, CannotRunError) as error:
        st.session_state["settings-error"] = str(error)
        if isinstance(error, InputError):
            return False
    if name == "language":
        choose_language(str(value))
    return True


def _said() -> None:
    error = st.session_state.pop("settings-error", None)
    if error:
        st.error(t("settings.not_kept", error=escape(translated(error))))


def _data() -> None:
    st.markdown(f"## {t('settings.data')}")
    runs = store().count_runs()
    st.markdown(t("settings.data_text", count=f"{runs:,}"))
    st.code(str(data_home()), language=None, wrap_lines=True)
    st.caption(t("settings.data_help", file=escape(preferences_path().name)))
    st.page_link(page_of("runs"), label=t("nav.runs"), icon=":material/list:")


def _device() -> None:
    st.markdown(f"## {t('nav.device')}")
    st.markdown(t("nav.device_line", cpu=escape(cpu_name()), threads=resolve_threads(0)))
    st.caption(kernels_line())
    ceilings()


def _about() -> None:
    st.markdown(f"## {t('settings.about')}\n\n{t('settings.about_text')}")
    found = {"Trilemma": version(), "Python": platform.python_version()}
    found |= {name: _version(name) for name in PACKAGES}
    st.table([{t("settings.part"): name, t("settings.version"): value} for name, value in found.items()])


def _version(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return MISSING
