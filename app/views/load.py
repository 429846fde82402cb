"""Load & capacity: one workload at many loads, both knees, the limit of an instance and when to add one."""

from __future__ import annotations

from typing import Any

from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.components.sweep_results import results
from app.components.sweep_setup import setup
from app.state import t
from experiments.kinds import kind_of
from experiments.store import Run


def page() -> None:
    """Draw the page for the sweep in the address, or the newest one."""
    job_page(JobPage("load", "sweep", lambda run: kind_of("sweep").says(run.spec), setup, _live, results))


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("load.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which point is measured."""
    if live["phase"] == "drawing":
        return t("live.drawing")
    if live["phase"] != "running":
        return t("load.phase_loading")
    return t("load.phase_running", repeat=live["repeat"], of=live["repeats"], done=len(live.get("points", [])))
