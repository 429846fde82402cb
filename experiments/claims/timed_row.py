"""One row of evidence about a step that two arms computed by turns."""

from __future__ import annotations

from typing import Any

from experiments.statistics import CurveVerdict
from experiments.step_probe import PairedProbe, ProbedStep


def timed_row(step: ProbedStep, verdict: CurveVerdict, found: PairedProbe, **own: Any) -> dict[str, Any]:
    """The step, what was judged of it and under what; `own` is the claim's, and stands first."""
    return {
        **own,
        "phase": step.phase,
        "batch": step.batch,
        "seq_len": step.seq_len,
        "baseline": verdict.baseline,
        "candidate": verdict.candidate,
        "change_pct": verdict.change_pct,
        "ci95": None if verdict.ci95 is None else list(verdict.ci95),
        "noise_floor_pct": verdict.noise_floor_pct,
        "verdict": verdict.verdict,
        "repeats": verdict.pairs,
        "unit": "s",
        "kernels": found.kernels,
        "dtype": found.dtype,
        "threads": found.threads,
        "provenance": "measured",
    }
