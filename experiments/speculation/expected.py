"""What a learner expects of each form before any result is seen, kept in the run's own spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.quality.predictions import Expected, Prediction, bounded, refuse_second
from experiments.store import Store

# alpha, and the speed-up over plain decoding, each on the task where the form does best.
EXPECTED = (Expected("alpha", 0.0, 1.0, 0.05), Expected("speedup", 0.01, 20.0, 0.1))


def checked_predictions(given: Any, forms: tuple[str, ...]) -> dict[str, Prediction] | None:
    """Predictions by form, each figure a number or None; InputError names what is wrong."""
    return bounded(given, forms, EXPECTED)


def lock_in(run_id: str, predictions: Mapping[str, Mapping[str, float | None]], store: Store) -> None:
    """Keep what was expected of a run's forms ({}: skipped). InputError when that was said before."""
    run = store.get_run(run_id)
    refuse_second(run)
    checked = checked_predictions(predictions, tuple(run.spec["forms"]))
    store.update_run(run_id, spec={**run.spec, "predictions": checked})
