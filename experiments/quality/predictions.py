"""What a learner expects of each candidate before any result is seen, kept in the run's own spec.

Owns the figures that can be expected, their bounds, and that they are said once. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.store import Run, Store
from ledger.errors import InputError

Prediction = dict[str, float | None]


@dataclass(frozen=True)
class Expected:
    """One figure: its name in JSON, its bounds, and the step of an input for it."""

    name: str
    low: float
    high: float
    step: float = 1.0


# The share of the baseline's bytes that are left, how many times as fast a decode of one sequence is, and the change of
# accuracy over all items in points.
EXPECTED = (
    Expected("memory_pct", 1.0, 200.0),
    Expected("decode_speedup", 0.01, 100.0, 0.1),
    Expected("accuracy_points", -100.0, 100.0),
)


def checked_predictions(given: Any, labels: Iterable[str]) -> dict[str, Prediction] | None:
    """Predictions by candidate's label, each figure a number or None; InputError names what is wrong."""
    return bounded(given, labels, EXPECTED)


def bounded(given: Any, labels: Iterable[str], expected: Sequence[Expected]) -> dict[str, Prediction] | None:
    """The same for the figures of another experiment."""
    if given is None:
        return None
    known, names = list(labels), [item.name for item in expected]
    found: dict[str, Prediction] = {}
    for label, figures in dict(given).items():
        if label not in known:
            raise InputError("predictions", label, ", ".join(known))
        for name in figures:
            if name not in names:
                raise InputError("predictions", name, ", ".join(names))
        found[label] = {item.name: _number(item, figures.get(item.name)) for item in expected}
    return found


def _number(item: Expected, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = item.high + 1
    if not item.low <= number <= item.high:
        raise InputError(item.name, value, f"a number from {item.low:g} to {item.high:g}")
    return number


def lock_in(run_id: str, predictions: Mapping[str, Mapping[str, float | None]], store: Store) -> None:
    """Keep what was expected of a run's candidates ({}: skipped). InputError when that was said before."""
    from experiments.quality.spec import EvalSpec

    run = store.get_run(run_id)
    refuse_second(run)
    found = None if run.result is None else [candidate["label"] for candidate in run.result["candidates"]]
    labels = EvalSpec.from_dict(run.spec).candidates() if found is None else found
    checked = checked_predictions(predictions, labels)
    store.update_run(run_id, spec={**run.spec, "predictions": checked})


def refuse_second(run: Run) -> None:
    """InputError when predictions of the run were entered or skipped before."""
    if run.spec.get("predictions") is not None:
        raise InputError("predictions", run.id, "a run whose predictions were not entered or skipped before")
