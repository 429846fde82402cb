"""Who is at the browser, and what they may do with a run. Several people share one engine and one store of runs.

A browser has a random name in a cookie (app/visitor_cookie.py); a run keeps the hash of the name that started it.
Anyone may read every run; cancelling, going on and deleting are for who started it, unless the server was started with
$TRILEMMA_SHARED_JOBS=1 (`trilemma ui --shared-jobs`). A run of the command line or of an older store is nobody's and
open to all.
"""

from __future__ import annotations

import hashlib
import os
import secrets

import streamlit as st

from app.visitor_cookie import COOKIE, NAME
from experiments.store import Run

KEPT = "visitor-name"
SHARED = "TRILEMMA_SHARED_JOBS"


def visitor() -> str:
    """The hash by which this browser's runs are known, 16 hexadecimal digits."""
    return hashlib.sha256(_name().encode()).hexdigest()[:16]


def _name() -> str:
    """The cookie's random name; without one, as where a browser keeps no cookies, one for as long as the session."""
    kept: str | None = st.session_state.get(KEPT)
    if kept is None:
        given = str(st.context.cookies.get(COOKIE))
        kept = st.session_state[KEPT] = given if NAME.fullmatch(given) else secrets.token_hex(16)
    return kept


def is_mine(run: Run) -> bool:
    """Whether this browser started the run, or nobody's did."""
    return run.started_by in (None, visitor())


def may_change(run: Run) -> bool:
    """Whether this browser may cancel, go on with or delete the run."""
    return os.environ.get(SHARED) == "1" or is_mine(run)
