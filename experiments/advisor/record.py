"""The advisor's predictions as they are kept, and what became of them.

A prediction is part of the spec of the run that tests it (`predictions`, which no hash of the spec counts): it is
stored as the run is created, before any of it is measured, and never written later. The outcome is the run's own
result, in the same row. Owns both, and reading them side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.advisor.prediction import Prediction
from experiments.advisor.prediction_history import Past, past_of
from experiments.store import Run, Store

MOST_RUNS = 1000
DECIDED = ("better", "worse", "no difference")


@dataclass(frozen=True)
class Outcome:
    """One curve of one predicted comparison: what was said and what was found.

    covered: whether the measured change lies in the band; None where there was no band (nothing predicted, or the
    outputs are the same by construction).
    """

    run_id: str
    variable: str
    values: tuple[Any, Any]
    workload: str
    curve: str
    source: str
    predicted_pct: float | None
    band80_pct: tuple[float, float] | None
    predicted: str | None
    measured_pct: float | None
    measured: str
    covered: bool | None

    @property
    def is_decided(self) -> bool:
        """Whether the comparison called the curve."""
        return self.measured in DECIDED

    @property
    def is_right(self) -> bool | None:
        """Whether the direction was said; None where nothing was predicted or the comparison did not decide."""
        return None if self.predicted is None or not self.is_decided else self.predicted == self.measured


def with_prediction(spec: Mapping[str, Any], prediction: Prediction) -> dict[str, Any]:
    """The spec of the comparison that tests the prediction, the prediction in it."""
    return {**spec, "predictions": prediction.to_json()}


def predicted_runs(store: Store) -> list[Run]:
    """Finished comparisons that were predicted, oldest first."""
    runs = store.list_runs(MOST_RUNS, kind="compare", state="done")
    return [run for run in reversed(runs) if run.spec.get("predictions") and not (run.result or {}).get("cancelled")]


def outcomes(run: Run) -> list[Outcome]:
    """Predicted and measured, a row a curve, of a comparison that has a result and a prediction; else none."""
    past: Past = past_of(run)
    said = {curve["name"]: curve for curve in (past.prediction or {}).get("curves") or ()}
    found = (run.result or {}).get("curves") or ()
    return [_outcome(run, said[curve["name"]], curve) for curve in found if curve["name"] in said]


def _outcome(run: Run, said: Mapping[str, Any], found: Mapping[str, Any]) -> Outcome:
    band, change = said["band80_pct"], found["change_pct"]
    covered = None
    if band is not None and not said["exact"] and change is not None:
        covered = band[0] <= change <= band[1]
    return Outcome(
        run_id=run.id,
        variable=str(run.spec["variable"]),
        values=(run.spec["values"][0], run.spec["values"][1]),
        workload=str(run.spec["workload"]),
        curve=str(found["name"]),
        source=str(said["source"]),
        predicted_pct=said["median_pct"],
        band80_pct=None if band is None else (band[0], band[1]),
        predicted=said["verdict"],
        measured_pct=change,
        measured=str(found["verdict"]),
        covered=covered,
    )
