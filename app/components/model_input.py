"""Choosing a model on a calculator page: a preset, a pasted or uploaded config.json, or typed numbers."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.components.inputs import choice, key_of, switch, whole
from app.components.section import escape
from app.state import set_address, t, translated
from experiments.model_source import ModelSource, packed, unpacked
from ledger.errors import InputError
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.presets import presets

CONFIG, TYPED = "config", "typed"
DEFAULT_MODEL = "llama-3.1-8b"
BOX_HEIGHT = 150
KEPT_TEXT, ACCEPTED = "kept-config-text", "accepted-config"  # one for all calculator pages


def model_choice(page: str, *, typed: bool = True, default: str = DEFAULT_MODEL) -> str:
    """The select box: the presets with their shape, then a config.json of one's own, then typed numbers."""
    options = [*presets(), CONFIG, *([TYPED] if typed else [])]
    return choice(page, "model", t("model.label"), options, default, _label)


def model_source(page: str, chosen: str) -> ModelSource | None:
    """The model of the choice, with the inputs it needs drawn here. None, and said at the field, when it is wrong."""
    if chosen == CONFIG:
        return _config(page)
    set_address(config=None, plain=None)
    if chosen == TYPED:
        return _typed(page)
    set_address(layers=None, kv_heads=None, head_dim=None)
    return ModelSource(preset=chosen)


def _label(name: str) -> str:
    if name in (CONFIG, TYPED):
        return t(f"model.{name}")
    form, numbers = _shape(name)
    return f"{name} · {t(f'model.{form}', **numbers)}"


@st.cache_data(show_spinner=False)
def _shape(name: str) -> tuple[str, dict[str, int]]:
    """Which text describes a preset's shape, and its numbers: those of the first layer that keeps KV."""
    spec = load_model_spec(name)
    first = next((layer for layer in spec.layers if layer.keeps_kv), None)
    if first is None:
        return "shape_state", {"layers": spec.num_layers}
    if first.kind == "mla":
        return "shape_latent", {"layers": spec.num_layers, "latent": first.latent_dim}
    return "shape", {"layers": spec.num_layers, "heads": first.kv_heads, "dim": first.k_head_dim}


def _typed(page: str) -> ModelSource:
    st.caption(t("model.typed_help"))
    first, second, third = st.columns(3)
    with first:
        layers = whole(page, "layers", t("model.layers"), 32, 1, 10_000)
    with second:
        kv_heads = whole(page, "kv_heads", t("model.kv_heads"), 8, 1, 10_000)
    with third:
        head_dim = whole(page, "head_dim", t("model.head_dim"), 128, 1, 65_536)
    return ModelSource(fields=(layers, kv_heads, head_dim))


def _config(page: str) -> ModelSource | None:
    key = key_of(page, "config_text")
    if key not in st.session_state:
        st.session_state[key] = unpacked(st.query_params.get("config", "")) or st.session_state.get(KEPT_TEXT, "")
    left, right = st.columns([1.7, 1])
    with left:
        pasted = st.text_area(t("model.paste"), key=key, height=BOX_HEIGHT, placeholder=t("model.paste_hint"))
    with right:
        file = st.file_uploader(t("model.upload"), type=["json"], max_upload_size=4, key=key_of(page, "config_file"))
        plain = switch(page, "plain", t("model.plain"), help=t("model.plain_help"))
    st.session_state[KEPT_TEXT] = pasted
    text = pasted if file is None else file.getvalue().decode("utf-8", "replace")
    if not text.strip():
        set_address(config=None)
        st.info(t("model.empty"))
        return None
    source = ModelSource(config=text, plain_attention=plain)
    if _accepted(source):
        st.session_state[ACCEPTED] = source
    elif ACCEPTED in st.session_state:
        source = st.session_state[ACCEPTED]
        st.caption(t("model.former"))
    else:
        set_address(config=None)
        return None
    text = source.config or ""
    short = packed(text)
    set_address(config=short)
    if short is None:
        st.caption(t("model.too_long"))
        st.download_button(t("model.file"), text, "config.json", "application/json", icon=":material/download:",
                           type="tertiary", on_click="ignore", key=key_of(page, "config_download"))  # fmt: skip
    return source


def _accepted(source: ModelSource) -> bool:
    """Whether the config gives a model; else one line says why not."""
    try:
        spec_of(source)
    except InputError as error:
        st.error(t("model.refused", error=escape(translated(str(error)))))
        return False
    return True


@st.cache_data(max_entries=32, show_spinner=False)
def spec_of(source: ModelSource) -> ModelSpec:
    """The model of a source, parsed once."""
    return source.spec()


def warn_assumed(spec: ModelSpec, notes: Sequence[str] = ()) -> None:
    """What was assumed of the model, or lies beyond it, before any figure."""
    for note in dict.fromkeys([*([spec.assumed] if spec.assumed else []), *notes]):
        st.warning(escape(translated(note)))
