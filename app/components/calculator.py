"""What the calculator pages share: inputs that mean the same on each, and taking the figures away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from app.components.inputs import choice, passed_over, rung
from app.components.section import csv_of, escape
from app.components.undo import undo_button
from app.state import language, t, translated
from experiments.ladders import LADDER
from ledger.errors import InputError
from ledger.formats import BITS
from ledger.weight_formats import AS_STORED, WEIGHT_FORMATS

MOST_TOKENS, MOST_SEQUENCES = 2**24, 2**20
CONTEXTS = tuple(rung for rung in LADDER if 128 <= rung <= 2**20)
COUNTS = (1, *(rung for rung in LADDER if 2 <= rung <= 4096))
SHARED = ("model", "config", "plain", "gpu", "weights", "kv_dtype", "seq_len", "tp", "lang")


Inputs = TypeVar("Inputs")


def calculator(page: str, inputs: Callable[[], Inputs | None], figures: Callable[[Inputs], None]) -> None:
    """A calculator page: its question, the box of inputs, and the figures they give, or why there are none."""
    st.title(t(f"{page}.question"), anchor=False)
    st.caption(t(f"{page}.caption"))
    with st.container(border=True):
        found = inputs()
    passed_over(page)
    undo_button(page)
    if found is None:
        return
    try:
        figures(found)
    except InputError as error:
        st.error(t("failed.input_error", error=escape(translated(str(error)))))


def weights_choice(page: str) -> str:
    """The format of the weights."""
    names = [AS_STORED, *WEIGHT_FORMATS]
    return choice(page, "weights", t("calc.weights"), names, "bf16", _format_label)


def kv_choice(page: str) -> str:
    """The format of the KV cache."""
    return choice(page, "kv_dtype", t("calc.kv"), list(BITS), "bf16", str.upper)


def tp_choice(page: str, most: int = 32) -> str:
    """Tensor-parallel ranks: powers of two."""
    options = [str(2**power) for power in range(most.bit_length())]
    return choice(page, "tp", t("calc.tp"), options, "1", str)


def context(page: str) -> int:
    """Tokens of a sequence."""
    return rung(page, "seq_len", t("calc.seq_len"), 4096, CONTEXTS, (1, MOST_TOKENS), _tokens)


def sequences(page: str, name: str, label: str, default: int = 4) -> int:
    """How many sequences at once."""
    return rung(page, name, label, default, COUNTS, (1, MOST_SEQUENCES), _sequences)


def files(name: str, report: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """The figures as JSON and CSV."""
    with st.container(horizontal=True):
        for suffix, made, mime, icon, label in (
            (
                "json",
                lambda: json.dumps(report, indent=1, ensure_ascii=False),
                "application/json",
                "data_object",
                "json",
            ),
            ("csv", lambda: csv_of(pd.DataFrame(rows)), "text/csv", "table", "csv"),
        ):
            st.download_button(
                t(f"result.{label}"), made, f"{name}.{suffix}", mime, icon=f":material/{icon}:", on_click="ignore",
                key=f"{name}-file-{suffix}",
            )  # fmt: skip


def link() -> None:
    """The address of the page as it is shown now, language included, ready to copy."""
    st.caption(t("calc.link"))
    address = {**st.query_params.to_dict(), "lang": language()}
    st.code(f"{st.context.url}?{urlencode(address)}", language=None, wrap_lines=True)


def same_model() -> dict[str, str]:
    """The parameters of this page that another calculator page understands too."""
    return {name: st.query_params[name] for name in SHARED if name in st.query_params}


def _format_label(name: str) -> str:
    return t("calc.as_stored") if name == AS_STORED else name.upper()


def _tokens(count: int) -> str:
    return t("calc.tokens", count=f"{count:,}")


def _sequences(count: int) -> str:
    return t("calc.sequences", count=f"{count:,}")
