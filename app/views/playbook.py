"""Playbook: the roll-out ladder or a recipe, climbed step by step on one's own workload and objectives."""

from __future__ import annotations

from typing import Any

from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.components.playbook_results import results
from app.components.playbook_setup import setup
from app.state import language, t, workload_name
from experiments.playbook.words import Says
from experiments.store import Run

PAGE = "playbook"


def page() -> None:
    """Draw the page for the ladder in the address, or the newest one."""
    job_page(JobPage(PAGE, "ladder", _what, setup, _live, results))


def _what(run: Run) -> str:
    return t("playbook.run", recipe=Says(language()).recipe(run.spec["recipe"]),
             workload=workload_name(run.spec["workload"]))  # fmt: skip


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("playbook.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which step is measured, and how."""
    name = live.get("step") or ""
    step = t("playbook.phase_start") if not name else Says(language()).step(name)
    if name == "start to end":
        step = t("playbook.whole")
    if live["phase"] == "running":
        return t("playbook.phase_running", step=step, repeat=live["repeat"], of=live["repeats"])
    if live["phase"] in ("items", "texts", "quality"):
        return t("playbook.phase_quality", step=step)
    return t("playbook.phase_loading", step=step)
