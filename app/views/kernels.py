"""Kernels: which operators a step consists of, their launches and time, and what one variable changes of them."""

from __future__ import annotations

from typing import Any

from app.components.job_live import live_job
from app.components.job_page import JobPage, job_page
from app.components.operators_results import results
from app.components.operators_setup import setup
from app.components.operators_words import step_name
from app.state import t
from experiments.operators.spec import ProfileSpec
from experiments.store import Run


def page() -> None:
    """Draw the page for the profile in the address, or the newest one."""
    job_page(JobPage("prof", "profile", _what, setup, _live, results))


def _what(run: Run) -> str:
    spec = ProfileSpec.from_dict(run.spec)
    varied = [] if spec.vary is None else [f"{spec.vary[0]}={','.join(map(str, spec.vary[1]))}"]
    return ", ".join([step_name(spec.step), *varied, *(f"{name}={value}" for name, value in spec.settings.items())])


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("prof.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which arm's step is being timed."""
    if live["phase"] != "running":
        return t("prof.phase_loading")
    name = ProfileSpec.from_dict(run.spec).names()[live["arm"]]
    repeat = min(live["repeat"], live["repeats"])
    return t("prof.phase_running", arm=name, repeat=repeat, of=live["repeats"])
