"""The pages that exist. Each imports its code when it is drawn, so that the navigation itself is there at once.

A page is a fragment: what is changed on it draws it anew, and not the navigation with all that stands beside it.
"""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from importlib import import_module
from urllib.parse import urlsplit

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from app.components.section import escape
from app.state import t
from ledger.errors import ALIKE, CannotRunError, InputError

FIRST = "workbench"  # the page that opens
ROOT = "home"  # Streamlit reserves a path for it that it does not answer: one that nobody types
WHOLE = ("settings",)  # pages that change what stands beside them too
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
    opens = name == FIRST
    return st.Page(
        lambda: _draw(name), title=t(f"nav.{name}"), icon=f":material/{icon}:", url_path=ROOT if opens else address,
        default=opens,
    )  # fmt: skip


def _draw(name: str) -> None:
    (_body if name in WHOLE else _body_alone)(name)


def nearest(address: str) -> str | None:
    """The page that an unknown address most likely means; None for a known one, or where none is near.

    A page behind another path of a reverse proxy has a last part of its own, which is like none of ours.
    """
    asked = urlsplit(address).path.rstrip("/").rpartition("/")[2].lower()
    known = {address: name for pages in GROUPS.values() for name, (_, address) in pages.items()}
    near = [] if asked in known else get_close_matches(asked, known, 1, ALIKE)
    return known[near[0]] if near else None


def _body(name: str) -> None:
    """Draw a page; a fault of ours becomes a message, and the stored runs are untouched."""
    try:
        import_module(f"app.views.{name}").page()
    except (InputError, CannotRunError) as error:
        st.error(t("failed.input_error", error=escape(str(error))))
    except Exception:  # a fault of ours must not show a stack to the reader, nor hide it from the one who mends it
        st.error(f"**{t('error.title')}**\n\n{t('error.safe')}")
        with st.expander(t("failed.details")):
            st.code(traceback.format_exc())


_body_alone = st.fragment(_body)


def groups() -> dict[str, list[StreamlitPage]]:
    """The pages under the headings of the sidebar."""
    found = {t(f"nav.{heading}"): [page_of(name) for name in pages] for heading, pages in GROUPS.items()}
    # The page that opens has an empty path; somebody who types its name gets it too.
    by_name = st.Page(lambda: _draw(FIRST), title=t(f"nav.{FIRST}"), url_path=FIRST, visibility="hidden")
    next(iter(found.values())).append(by_name)
    return found
