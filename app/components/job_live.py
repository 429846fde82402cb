"""The live strip of a running job of phases: a fragment of its own, redrawn every few seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.components.live import duration, not_yet, refresh_s
from app.components.section import escape
from app.state import store, t, translated
from core_engine.cores import threads_found
from experiments import jobs
from experiments.store import Run


@st.fragment(run_every=refresh_s(threads_found()))
def live_job(run_id: str, title: Callable[[Run, dict[str, Any]], str], leave: str) -> None:
    """What is computed now (title), how much is done, and about how long the rest takes. Redraws the page at the end.

    leave: what happens when the reader goes.
    """
    run = jobs.status(run_id, store())
    if run.state not in jobs.ACTIVE:
        st.rerun()
    live = jobs.live(run_id, store()) if run.state == "running" else None
    with st.container(border=True):
        if live is None:
            not_yet(run)
            return
        left, right = st.columns([3, 1.4], vertical_alignment="center")
        left.markdown(f"## {escape(title(run, live))}")
        with right, st.container(key="time_left"):
            percent = f"{100 * live['fraction']:.0f}"
            key = "live.percent" if live["eta_s"] is None else "live.left"
            st.markdown(t(key, percent=percent, time=duration(live["eta_s"] or 0)))
        st.progress(live["fraction"])
        if live.get("note"):
            st.caption(escape(translated(live["note"])))
        st.caption(leave)
