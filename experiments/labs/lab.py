"""A lab as data: what is asked, what runs, what is graded, and the texts of one language. See docs/labs.md.

Owns the shapes; reading the files is loader.py's, computing figures figures.py's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LANGUAGES = ("en", "zh")
FORMULA = "formula"  # an experiment without a run: its figures are computed when it is started
PASS_MARK = 0.7
MISSING = "–"  # in place of a figure that could not be told
PLACEHOLDER = re.compile(r"\{\{\s*([a-z0-9_]+)\s*\}\}")


@dataclass(frozen=True)
class Figure:
    """A named number (or word): `given` in a text, read from the `run` at a path, or made by the function `key`.

    of: figures that the function takes first; args: its other arguments, where "@NAME" is a figure. provenance: instead
    of what follows from where it is from.
    """

    name: str
    unit: str = ""
    given: Any = None
    run: str | None = None
    key: str | None = None
    of: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    provenance: str | None = None

    def needs(self) -> tuple[str, ...]:
        """The figures that it is made of."""
        return (*self.of, *(value[1:] for value in self.args.values() if isinstance(value, str) and value[:1] == "@"))


@dataclass(frozen=True)
class Prediction:
    """What the learner has to say before the experiment runs: a number in `unit`, or one of `choices`."""

    figure: str
    unit: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """kind: one of experiments/kinds.py with its spec, or "formula"."""

    kind: str
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_run(self) -> bool:
        """Whether a job computes it."""
        return self.kind != FORMULA


@dataclass(frozen=True)
class Question:
    """kind: number (the answer is a figure), choice (one), many (all that are right) or order (of all of them).

    answer: ids of the choices that are right, in their order for `order`; empty where `figure` says the right one.
    mistakes: name -> figure with the value that this usual mistake gives. tolerance: relative; absolute: in `unit`.
    """

    id: str
    kind: str
    figure: str | None = None
    unit: str = ""
    tolerance: float = 0.02
    absolute: float | None = None
    mistakes: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    points: float = 1.0


@dataclass(frozen=True)
class Remark:
    """A paragraph of the explanation that stands only where the learner's own figure is below, above or equal."""

    id: str
    figure: str
    below: float | None = None
    above: float | None = None
    equal: Any = None

    def holds(self, value: Any) -> bool:
        """Whether it is to be shown; a missing figure shows none."""
        if value is None:
            return False
        if self.equal is not None:
            return bool(value == self.equal)
        return (self.below is None or value < self.below) and (self.above is None or value > self.above)


@dataclass(frozen=True)
class Texts:
    """All words of a lab in one language; texts are Markdown with {{figure}} where a value belongs."""

    title: str
    summary: str
    goal: str
    theory: str
    experiment: str
    why: str
    prediction: Mapping[str, Any]
    figures: Mapping[str, str]
    remarks: Mapping[str, str]
    questions: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Lab:
    """id: the folder's name. show: figures beside the prediction in the results."""

    id: str
    order: int
    sections: tuple[str, ...]
    claims: tuple[str, ...]
    minutes: int
    reading: tuple[str, ...]
    prediction: Prediction
    experiment: Experiment
    figures: Mapping[str, Figure]
    show: tuple[str, ...]
    remarks: tuple[Remark, ...]
    questions: tuple[Question, ...]
    texts: Mapping[str, Texts]
    edition: str
    pass_mark: float = PASS_MARK

    def question(self, question_id: str) -> Question | None:
        """The question of this id."""
        return next((question for question in self.questions if question.id == question_id), None)

    def needs_run(self, name: str) -> bool:
        """Whether a figure is known only after the run."""
        figure = self.figures[name]
        return figure.run is not None or any(self.needs_run(other) for other in figure.needs())


def placeholders(text: str) -> Sequence[str]:
    """Names of the figures that a text has a place for."""
    return PLACEHOLDER.findall(text)
