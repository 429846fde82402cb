"""Choosing a card, and the ceilings of this machine."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.components.inputs import choice
from app.components.section import escape
from app.state import badge, t, translated
from experiments.calibrate import calibration_file, this_machine
from experiments.report.words import number
from ledger.errors import InputError
from ledger.hardware import Accelerator, catalogue

THIS = "this"
DEFAULT_GPU = "l4"
GIB = 2**30
CACHED_S = 30  # a change of the user's own hardware file is seen after so long


def gpu_choice(page: str, default: str = DEFAULT_GPU) -> str:
    """The select box of cards: the catalogue, and this machine when it is calibrated."""
    found = cards()
    fault = own_file_fault()
    if fault is not None:
        st.warning(t("calc.own_file", error=escape(translated(fault))))
    return choice(page, "gpu", t("calc.gpu"), list(found), default, lambda name: _label(found[name]))


def cards() -> dict[str, Accelerator]:
    """Name -> card; this machine, when it is calibrated, first. Without the user's own when their file is wrong."""
    try:
        calibrated = calibration_file().stat().st_mtime_ns
    except OSError:
        calibrated = 0
    return _cards(calibrated)


@st.cache_data(max_entries=2, ttl=CACHED_S, show_spinner=False)
def _cards(calibrated: int) -> dict[str, Accelerator]:
    """calibrated keys the cache: what was measured a moment ago is seen at once."""
    this = this_machine()
    return ({THIS: this} if this is not None else {}) | catalogue(with_own=own_file_fault() is None)


def own_file_fault() -> str | None:
    """What is wrong with the user's hardware file, in one line."""
    try:
        catalogue()
    except InputError as error:
        return str(error)
    return None


def card_name(card: Accelerator) -> str:
    """The card's name for a sentence; this machine's in the language of the page."""
    return t("calc.this_machine") if card.provenance == "measured" else card.label


def _label(card: Accelerator) -> str:
    return f"{card_name(card)} · {t('calc.gib', value=f'{card.memory_bytes / GIB:,.2f}')}"


def memory_source(card: Accelerator) -> str:
    """Where the card's memory figure is from, in words."""
    return t(f"calc.memory_{card.memory_source}")


def rates(flops_per_s: Mapping[str, float]) -> str:
    """Rates by number format: "BF16 121, FP8 242 TFLOP/s"; in GFLOP/s where none reaches a TFLOP/s."""
    scale, unit = (1e12, "TFLOP/s") if max(flops_per_s.values()) >= 1e12 else (1e9, "GFLOP/s")
    return f"{', '.join(f'{name.upper()} {number(rate / scale)}' for name, rate in flops_per_s.items())} {unit}"


def ceilings() -> None:
    """What was measured of this machine, or how to measure it; for the sidebar."""
    this = cards().get(THIS)
    if this is None:
        st.caption(f"{t('nav.ceilings')}  \n{t('nav.no_ceilings')}")
        return
    bandwidth = t("nav.bandwidth", value=number(this.bandwidth_bytes_per_s / 1e9))
    gemm = t("nav.gemm", value=rates(this.flops_per_s))
    st.caption(f"{t('nav.ceilings')} {badge('measured')}  \n{bandwidth}  \n{gemm}")
