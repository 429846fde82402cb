"""Parallel: one model over several processes here."""

from __future__ import annotations

from typing import Any

from app.components import ranks_parts
from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.state import t
from experiments.ranks_view import is_of_ranks
from experiments.store import Run


def page() -> None:
    """Draw the page for the run in the address, or the newest one."""
    job_page(JobPage("ranks", "claim", _ranks, ranks_parts.setup, _live, ranks_parts.results, own=is_of_ranks))


def _ranks(run: Run) -> str:
    return t("ranks.runs", repeats=run.spec["options"].get("repeats", "auto"))


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("parallel.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    return t("parallel.phase_loading")
