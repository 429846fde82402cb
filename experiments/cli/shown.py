"""Which function prints the result of which kind of run, as its own verb does; its module is imported when asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# Kind of run -> the function that prints its result.
PRINTERS = {
    "bench": "tables.print_metrics",
    "compare": "tables.print_comparison",
    "factorial": "factorial.print_factorial",
    "eval": "quality_tables.print_evaluation",
    "speculation": "speculation.print_speculation",
    "profile": "profile.print_profile",
    "sweep": "sweep.print_sweep",
    "plan": "plan.print_plan",
    "calibrate": "calibrate.print_calibration",
    "jitter": "jitter.print_jitter",
    "cache": "cache.print_cache",
    "ladder": "ladder.print_ladder",
    "levers": "levers.print_levers",
    "claim": "claims.print_claim",
    "claims": "claims.print_claims",
}


def print_result(kind: str, result: dict[str, Any]) -> None:
    """Print the result of a run of a kind."""
    module, _, name = PRINTERS[kind].partition(".")
    printer: Callable[[dict[str, Any]], None] = getattr(import_module(f"experiments.cli.{module}"), name)
    printer(result)
