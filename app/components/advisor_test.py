"""The comparison that tests an advice: started, watched, and its verdict beside the prediction."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import own_jobs
from app.components.advisor_results import bands, change_text
from app.components.failed import failed_run
from app.components.live import live_panel
from app.components.section import escape, section_head
from app.components.stored_job import cancel, tell
from app.state import badge, language, set_address, store, t
from app.visitor import may_change, visitor
from experiments import jobs
from experiments.advisor.advice import Advice, start_test
from experiments.advisor.record import Outcome
from experiments.advisor_view import outcome_rows
from experiments.report import headline
from experiments.report.words import MISSING, signed_percent
from experiments.store import Run
from ledger.errors import InputError

TEST = "test"  # the parameter of the address that names the run


def start(made: Advice) -> None:
    """Start the test as a job; its id goes into the address."""
    set_address(**{TEST: start_test(made, store(), started_by=visitor())})


def tested(page: str) -> None:
    """The test that the address names, in whatever state it is."""
    run_id = st.query_params.get(TEST)
    if run_id is None:
        return
    try:
        run = jobs.status(run_id, store())
    except InputError:
        st.warning(t("page.unknown_run", id=escape(run_id)))
        set_address(**{TEST: None})
        return
    st.markdown(f"## {t('advisor.tested')}")
    if run.state in jobs.ACTIVE:
        live_panel(run.id)
        st.button(
            t("picker.cancel"), icon=":material/stop:", disabled=not may_change(run),
            on_click=lambda: cancel(page, run),
        )  # fmt: skip
    elif run.result is not None:
        beside(run)
    elif run.state == "failed":
        failed_run(run, t("failed.next"), lambda: tell(page, lambda: _again(run)))
    else:
        st.info(t("failed.cancelled"))


def _again(run: Run) -> None:
    set_address(**{TEST: own_jobs.restart(run.id)})


def beside(run: Run) -> None:
    """Predicted beside measured of a comparison that was predicted; nothing for another."""
    rows = outcome_rows(run)
    if not rows or run.result is None:
        return
    with st.container(border=True, key=f"beside-{run.id}"):
        st.markdown(f"**{escape(headline(run.result, language())[1])}** {badge('measured')}")
        frame = pd.DataFrame([vars(row) for row in rows])
        section_head(t("advisor.beside"), t("advisor.beside_caption", id=run.id), frame, f"outcome-{run.id}")
        st.table(pd.DataFrame([_row(row) for row in rows]).set_index(t("advisor.col_curve")))
        bands([{"name": row.curve, "median_pct": row.predicted_pct, "band80_pct": row.band80_pct,
                "measured_pct": row.measured_pct} for row in rows])  # fmt: skip


def _row(row: Outcome) -> dict[str, str]:
    exact = row.covered is None and row.predicted_pct is not None
    return {
        t("advisor.col_curve"): t(row.curve),
        t("advisor.col_change"): escape(change_text(row.predicted_pct, row.band80_pct, exact=exact)),
        t("advisor.col_measured"): signed_percent(row.measured_pct),
        t("advisor.col_verdict"): t(row.measured),
        t("advisor.col_right"): MISSING if row.is_right is None else t("advisor.yes" if row.is_right else "advisor.no"),
        t("advisor.col_covered"): MISSING if row.covered is None else t("advisor.yes" if row.covered else "advisor.no"),
    }
