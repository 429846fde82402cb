"""Quantization: what number formats of weights and KV cache save, how fast they are, and what they cost in quality."""

from __future__ import annotations

from app.components.job_page import JobPage, job_page
from app.components.quantization_live import live_evaluation
from app.components.quantization_predictions import ask
from app.components.quantization_results import results
from app.components.quantization_setup import setup
from app.state import t
from experiments.quality.predictions import lock_in
from experiments.store import Run


def page() -> None:
    """Draw the page for the evaluation in the address, or the newest one."""
    job_page(JobPage("quant", "eval", _what, setup, live_evaluation, results, ask, lock_in))


def _what(run: Run) -> str:
    arms = run.spec.get("arms") or []
    varied = [run.spec["vary"][0]] if run.spec.get("vary") else list(run.spec.get("settings") or {})
    return ", ".join(str(next(iter(arm.values()))) for arm in arms) or ", ".join(varied) or t("quant.no_candidate")
