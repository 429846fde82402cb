"""The parts of a run of drafts: which prompts, how many at once, which forms and constructed drafts on them.

Knows no engine, so that a page or a command line can name what a run is at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.speculation.figures import OFF
from experiments.speculation.spec import SpeculationSpec
from experiments.speculation.tasks import TASKS

POOR = 0.3  # the acceptance of the case that is reproduced
POOR_COST = 0.169  # with it, k = 4 and v = 1, throughput falls by 15 %
ALPHAS = (POOR, 0.5, 0.7, 0.9, 1.0)
LENGTHS = (1, 2, 4, 8)
LENGTHS_ALPHA = 0.7
BATCH_ALPHA = 0.8


@dataclass(frozen=True)
class Made:
    """A constructed draft: how often it is right, how many tokens it proposes, what each costs in plain passes."""

    alpha: float
    k: int
    c: float = 0.0

    @property
    def label(self) -> str:
        """Its name among the arms of a part."""
        return f"constructed a={self.alpha:g} k={self.k} c={self.c:g}"


@dataclass(frozen=True)
class Part:
    """What is measured together. kind: "task", "constructed" or "batch"."""

    kind: str
    name: str
    prompts: tuple[tuple[int, ...], ...]
    batch: int
    forms: tuple[str, ...]
    made: tuple[Made, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Of the arms with drafts."""
        return [*self.forms, *(one.label for one in self.made)]


def arm_names(spec: SpeculationSpec) -> list[str]:
    """What the live object's arms are called, by number: every arm of every part, as if all forms could run."""
    return [f"{part}: {label}" for part, labels in planned(spec) for label in (OFF, *labels)]


def planned(spec: SpeculationSpec) -> list[tuple[str, list[str]]]:
    """(name, labels of the arms with drafts) of every part, as if all forms could run."""
    return [(part.name, part.labels) for part in parts_of(spec, spec.forms, lambda *_: [])]


def parts_of(
    spec: SpeculationSpec, forms: Sequence[str], ids: Callable[[str, int | None], list[list[int]]]
) -> list[Part]:
    """All parts; ids gives the prompts of a task, at most so many."""

    def prompts(task: str, limit: int | None) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(one) for one in ids(task, limit))

    found = [Part("task", task, prompts(task, spec.prompts), 1, tuple(forms)) for task in spec.tasks]
    if spec.constructed:
        one_each = tuple(prompt for task in TASKS for prompt in prompts(task, 1))
        found.append(Part("constructed", "constructed", one_each, 1, (), constructed_drafts(spec.num_draft_tokens)))
    known = prompts(spec.batch_task, None)
    for batch in spec.batches:
        repeated = tuple(known[place % len(known)] for place in range(batch)) if known else ()
        made = (Made(BATCH_ALPHA, spec.num_draft_tokens),) if spec.constructed else ()
        found.append(Part("batch", str(batch), repeated, batch, tuple(forms), made))
    return found


def constructed_drafts(k: int) -> tuple[Made, ...]:
    """Free drafts at every acceptance, the poor one at its cost as well, and every length at one acceptance."""
    curve = [Made(alpha, k) for alpha in ALPHAS]
    return tuple(dict.fromkeys([*curve, Made(POOR, k, POOR_COST), *(Made(LENGTHS_ALPHA, one) for one in LENGTHS)]))
