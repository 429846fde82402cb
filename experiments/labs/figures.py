"""Computes a lab's figures from its run's result and the ledger. A figure that can't be told is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.labs.keys import ARITHMETIC, FORMULAS, look_up
from experiments.labs.lab import MISSING, PLACEHOLDER, Figure, Lab
from experiments.labs.quantities import say_quantity

RANKED = ("simulated", "measured", "estimated", "assumed", "computed")
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """A figure's value in its unit, and where it is from."""

    value: Any
    unit: str
    provenance: str

    def to_json(self) -> dict[str, Any]:
        """As the progress file keeps it."""
        return asdict(self)

    def say(self, lang: str) -> str:
        """For a reader: number and unit, a word as it is, several after one another."""
        if self.value is None:
            return MISSING
        if isinstance(self.value, list):
            return ", ".join(Known(one, self.unit, self.provenance).say(lang) for one in self.value)
        return self.value if isinstance(self.value, str) else say_quantity(self.value, self.unit, lang)


Figures = Mapping[str, Known]


def compute_figures(lab: Lab, result: Result | None) -> dict[str, Known]:
    """All figures of a lab; without a result those that need no run.

    CannotRunError when the result lacks a place that the lab reads, InputError from a formula.
    """
    found: dict[str, Known] = {}
    for name in lab.figures:
        if result is not None or not lab.needs_run(name):
            _compute(lab, name, result, found)
    return found


def _compute(lab: Lab, name: str, result: Result | None, found: dict[str, Known]) -> Known:
    if name not in found:
        figure = lab.figures[name]
        inputs = {other: _compute(lab, other, result, found) for other in figure.needs()}
        found[name] = Known(_value(figure, result, inputs), figure.unit, _provenance(figure, result, inputs))
    return found[name]


def _value(figure: Figure, result: Result | None, inputs: Figures) -> Any:
    if figure.given is not None:
        return figure.given
    if figure.run is not None:
        return None if result is None else look_up(result, figure.run)
    if any(known.value is None for known in inputs.values()):
        return None
    values = [inputs[other].value for other in figure.of]
    args = {
        key: inputs[value[1:]].value if isinstance(value, str) and value[:1] == "@" else value
        for key, value in figure.args.items()
    }
    function = ARITHMETIC.get(figure.key or "") or FORMULAS[figure.key or ""]
    return function(*values, **args)


def _provenance(figure: Figure, result: Result | None, inputs: Figures) -> str:
    """What was said of it, else the run's label, else the weakest label of what it is made of; a formula computes."""
    if figure.provenance is not None:
        return figure.provenance
    if figure.run is not None:
        return str((result or {}).get("provenance") or "measured")
    made_of = {known.provenance for known in inputs.values()}
    if figure.key in FORMULAS and "simulated" not in made_of:
        return "computed"
    return min(made_of, key=RANKED.index, default="computed")


def filled(text: str, figures: Figures, lang: str, prediction: str | None = None) -> str:
    """The text with the figures' values in their places."""

    def value(found: Any) -> str:
        name = found[1]
        return (prediction or MISSING) if name == "prediction" else figures[name].say(lang)

    return PLACEHOLDER.sub(value, text)
