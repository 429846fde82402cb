"""The live strip of a running evaluation: what it is at."""

from __future__ import annotations

from typing import Any

from app.components.format_names import format_name
from app.components.job_live import live_job
from app.state import t
from experiments.quantization_setup import asked
from experiments.store import Run
from ledger.errors import InputError

PHASES = ("loading", "items", "texts", "speed")


def live_evaluation(run_id: str) -> None:
    """What is computed now, how much is done, and about how long the rest takes."""
    live_job(run_id, _phase, t("quant.leave"))


def _phase(run: Run, live: dict[str, Any]) -> str:
    key = live["phase"] if live["phase"] in PHASES else PHASES[0]
    return t(f"quant.phase_{key}", name=_arm(run, live["arm"]))


def _arm(run: Run, place: int) -> str:
    """The name of a candidate (from 1), or the baseline's."""
    try:
        found = list(asked(run.spec).values())
    except InputError:  # files that it names are gone; the run itself has read them
        return str(place)
    if not 0 < place <= len(found):
        return t("quant.the_baseline")
    one = found[place - 1]
    return format_name(one.changed, one.group, one.dtype)
