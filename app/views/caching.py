"""Caching: which questions get a stored answer, which get a wrong one, and what that saves."""

from __future__ import annotations

from typing import Any

from app.components.caching_parts import results, setup
from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.state import t, workload_name
from experiments.store import Run


def page() -> None:
    """Draw the page for the run in the address, or the newest one."""
    job_page(JobPage("caching", "cache", _what, setup, _live, results))


def _what(run: Run) -> str:
    pairs = t("caching.pairs_of", languages=t("list_join").join(t(f"caching.{name}") for name in run.spec["languages"]))
    return t("list_join").join([pairs, workload_name(run.spec["workload"])]) if run.spec["traffic"] else pairs


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("caching.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Whether pairs are judged or traffic runs."""
    if live["phase"] == "quality":
        return t("caching.phase_pairs")
    if live["phase"] != "running":
        return t("caching.phase_loading")
    return t("caching.phase_running", repeat=min(live["repeat"], live["repeats"]), of=live["repeats"])
