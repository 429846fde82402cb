"""Speculation: what every form of draft gains on the same prompts, what it costs, and where it does not pay."""

from __future__ import annotations

from typing import Any

from app.components import predict_first
from app.components.job_live import live_job
from app.components.job_page import Guessed, JobPage, job_page
from app.components.speculation_results import results
from app.components.speculation_setup import setup
from app.components.speculation_words import form_name, part_name
from app.state import t
from experiments.speculation.expected import EXPECTED, lock_in
from experiments.speculation.parts import arm_names
from experiments.speculation.spec import SpeculationSpec
from experiments.store import Run


def page() -> None:
    """Draw the page for the run in the address, or the newest one."""
    job_page(
        JobPage("spec", "speculation", _what, setup, _live, results, _ask, lock_in, lambda run: bool(run.spec["forms"]))
    )


def _what(run: Run) -> str:
    settings = [f"{name}={value}" for name, value in run.spec["settings"].items()]
    return ", ".join([*run.spec["forms"], f"k={run.spec['num_draft_tokens']}", *settings])


def _live(run_id: str) -> None:
    live_job(run_id, _phase, t("spec.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    """Which form is answering which prompts."""
    if live["phase"] != "running":
        return t("spec.phase_warmup" if live["phase"] == "warmup" else "spec.phase_loading")
    part, _, form = arm_names(SpeculationSpec.from_dict(run.spec))[live["arm"]].partition(": ")
    return t(
        "spec.phase_running", part=part_name(part), form=form_name(form), repeat=live["repeat"], of=live["repeats"]
    )


def _ask(run: Run, guessed: Guessed) -> None:
    names = {form: form_name(form) for form in run.spec["forms"]}
    predict_first.ask(run, names, EXPECTED, "spec", guessed)
