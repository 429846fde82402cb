"""The pages that exist. Each imports its code when it is drawn, so that the navigation itself is there at once."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from urllib.parse import urlsplit

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.state import t
from ledger.errors import ALIKE

FIRST = "workbench"  # the page that opens
# Heading of the sidebar -> page, by its module in app/views and the key of its title, with icon and address.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "experiment": {
        "workbench": ("science", "workbench"),
        "factorial": ("grid_view", "two"),
        "trace": ("stacked_bar_chart", "trace"),
    },
    "understand": {
        "ledger": ("table_rows", "ledger"),
        "roofline": ("show_chart", "roofline"),
        "kernels": ("memory", "kernels"),
        "quantization": ("compress", "quantization"),
        "speculation": ("fast_forward", "speculation"),
        "caching": ("cached", "caching"),
    },
    "serve": {
        "load": ("speed", "load"),
        "parallel": ("account_tree", "parallel"),
        "plan": ("dns", "plan"),
        "cost": ("paid", "cost"),
    },
    "decide": {
        "advisor": ("lightbulb", "advisor"),
        "playbook": ("stairs", "playbook"),
    },
    "learn": {
        "claims": ("fact_check", "claims"),
        "labs": ("school", "labs"),
        "interview": ("quiz", "interview"),
    },
    "machine": {
        "runs": ("list", "runs"),
        "settings": ("settings", "settings"),
    },
}


def page_of(name: str) -> StreamlitPage:
    """A page of GROUPS by its name, to list or to link to."""
    icon, address = next(pages[name] for pages in GROUPS.values() if name in pages)

    def draw() -> None:
        import_module(f"app.views.{name}").page()

    return st.Page(draw, title=t(f"nav.{name}"), icon=f":material/{icon}:", url_path=address, default=name == FIRST)


def nearest(address: str) -> str | None:
    """The page that an unknown address most likely means; None for a known one, or where none is near.

    A page behind another path of a reverse proxy has a last part of its own, which is like none of ours.
    """
    asked = urlsplit(address).path.rstrip("/").rpartition("/")[2].lower()
    known = {address: name for pages in GROUPS.values() for name, (_, address) in pages.items()}
    near = [] if asked in known else get_close_matches(asked, known, 1, ALIKE)
    return known[near[0]] if near else None


def groups() -> dict[str, list[StreamlitPage]]:
    """The pages under the headings of the sidebar."""
    return {t(f"nav.{heading}"): [page_of(name) for name in pages] for heading, pages in GROUPS.items()}
