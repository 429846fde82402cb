"""The Settings page's two measurements of this machine: when each was last made, and the button that makes it again."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import own_jobs
from app.components.job_live import live_job
from app.components.section import escape
from app.components.stored_job import cancel, tell, told
from app.state import store, t, translated
from app.visitor import is_mine, may_change
from experiments import jobs
from experiments.calibrate import stored as stored_ceilings
from experiments.calibration_job import CEILINGS, SECONDS
from experiments.report.reproduce import command_of
from experiments.report.words import number
from experiments.store import Run
from ledger.errors import InputError

PAGE, KIND = "calibrate", "calibrate"
MINUTE = len("2026-01-01T00:00")


def calibrations() -> None:
    """Draw both, with what is being measured now above them."""
    st.markdown(f"## {t('calibrate.title')}")
    st.caption(t("calibrate.text"))
    run = _newest()
    active = run is not None and run.state in jobs.ACTIVE
    told(PAGE)
    if run is not None and active:
        live_job(run.id, lambda one, _: t(f"calibrate.doing_{one.spec['what']}"), t("calibrate.leave"))
        if may_change(run):
            said = "picker.cancelling" if run.cancel_requested else "picker.cancel"
            st.button(t(said), icon=":material/stop:", on_click=lambda: cancel(PAGE, run),
                      disabled=run.cancel_requested, key=f"{PAGE}-cancel")  # fmt: skip
    elif run is not None and run.state == "failed":
        st.error(t("calibrate.failed", error=escape(translated(run.error or ""))))
    for column, what in zip(st.columns(len(SECONDS)), SECONDS, strict=True):
        with column:
            _one(what, active=active)


def _newest() -> Run | None:
    """The visitor's newest calibration, as it is now."""
    found = next(filter(is_mine, store().list_runs(kind=KIND, limit=10)), None)
    try:
        return None if found is None else jobs.status(found.id, store())
    except InputError:  # deleted in between
        return None


def _one(what: str, *, active: bool) -> None:
    spec: dict[str, Any] = {"what": what}
    st.markdown(f"**{t(f'calibrate.{what}')}**  \n{t(f'calibrate.{what}_text')}")
    st.caption(_last(what))
    st.button(t(f"calibrate.run_{what}"), icon=":material/speed:", disabled=active, key=f"{PAGE}-{what}",
              on_click=lambda: tell(PAGE, lambda: _start(spec)))  # fmt: skip
    st.code(str(command_of(KIND, spec)), language="shell")


def _start(spec: dict[str, Any]) -> None:
    own_jobs.start(KIND, spec)


def _last(what: str) -> str:
    """When it was last done on this machine, whoever did it."""
    if what == CEILINGS:
        found = stored_ceilings()
        return t("calibrate.never") if found is None else t("calibrate.measured_at", at=_minute(found["date"]))
    from core_engine.config import EngineConfig
    from experiments.simulator.calibration import settings_of_a_step, stored

    usual = settings_of_a_step(EngineConfig())
    entry = next((one for one in reversed(stored()) if one["for"] == usual), None)
    if entry is None:
        return t("calibrate.never")
    error = number(entry["fit"]["cross_validated_error_pct"]["mean"])
    return t("calibrate.fitted_at", at=_minute(entry["date"]), error=error)


def _minute(date: str) -> str:
    return date[:MINUTE].replace("T", " ")
