"""The next step that the advisor sees after a comparison: one line and the way to its page."""

from __future__ import annotations

import streamlit as st

from app.components.advisor_results import cause_name
from app.components.advisor_test import beside
from app.components.section import escape
from app.navigation import page_of
from app.state import language, store, t
from experiments.advisor.diagnose import Diagnosis
from experiments.advisor_view import next_step as diagnosed
from experiments.store import Run

CACHED_S = 60  # a calibration made meanwhile is seen after so long


@st.cache_resource(max_entries=8, ttl=CACHED_S, show_spinner=False)
def _diagnosed(run_id: str, updated_at: str) -> Diagnosis | None:
    """What the record of a finished comparison says; updated_at keys the cache. Shared, not copied."""
    return diagnosed(store().get_run(run_id), store())


def next_step(run: Run) -> None:
    """What limits the candidate now and which change comes next; what was predicted of this run, if it was."""
    beside(run)
    found = _diagnosed(run.id, run.updated_at)
    if found is None:
        return
    with st.container(border=True, key="next_step"):
        st.markdown(f"## {t('advisor.next_step')}")
        top = found.top
        if top is None:
            st.markdown(t(f"advisor.sentence_{found.verdict.replace(' ', '_')}"))
        else:
            st.markdown(escape(t("advisor.sentence_found", cause=cause_name(top.cause),
                                 means=t(f"advisor.means_{top.cause}"))))  # fmt: skip
        st.page_link(
            page_of("advisor"), label=t("advisor.to_advisor"), icon=":material/lightbulb:",
            query_params={"run": run.id, "arm": "1", "lang": language()},
        )  # fmt: skip
