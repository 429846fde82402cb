"""An empty page: what is missing, and the button that does something about it."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.navigation import page_of


def empty(text: str, label: str, to: str | Callable[[], None], icon: str = "arrow_forward", key: str = "empty") -> None:
    """Draw it; `to` is the page that the button opens, or what it does."""
    with st.container(border=True, key=f"{key}-box"):
        st.markdown(text)
        if isinstance(to, str):
            if st.button(label, icon=f":material/{icon}:", key=key):
                st.switch_page(page_of(to))
        else:
            st.button(label, icon=f":material/{icon}:", on_click=to, key=key)
