"""The next step that the advisor sees after a comparison: one line and the way to its page."""

from __future__ import annotations

import streamlit as st

from app.components.advisor_results import cause_name
from app.components.advisor_test import beside
from app.components.section import escape
from app.navigation import page_of
from app.state import language, store, t
from experiments.advisor_view import next_step as diagnosed
from experiments.store import Run


def next_step(run: Run) -> None:
    """What limits the candidate now and which change comes next; what was predicted of this run, if it was."""
    beside(run)
    found = diagnosed(run, store())
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
