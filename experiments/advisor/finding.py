"""What a cause says: a finding with its evidence, its bounds and the changes it proposes, or what is missing to tell.

Owns these shapes and their JSON. A prediction of what a change will do is attached to it by whoever makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core_engine.variables import VARIABLES, Value
from experiments.advisor.evidence import how_to_know

CONFIG, CODE, ARCHITECTURE = "config", "code", "architecture"
EFFORTS = (CONFIG, CODE, ARCHITECTURE)
"""From a setting over a program to be written to a system to be rebuilt."""


@dataclass(frozen=True)
class Change:
    """One variable to change. from_value None: nobody said what it is now. to_value None: to be chosen by a search.

    variable is a name of the registry, or one of OUTSIDE for what no engine can be told. refuted_by is what would show
    that the advice is wrong. prediction is None until somebody predicts (experiments/advisor/advice.py).
    """

    variable: str
    from_value: Value | None
    to_value: Value | None
    why: str
    refuted_by: str
    effort: str = CONFIG
    prediction: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.variable not in VARIABLES and self.variable not in OUTSIDE:
            raise ValueError(f"{self.variable} is no variable")  # a fault of a cause, not of the user
        if self.effort not in EFFORTS:
            raise ValueError(f"{self.effort} is no effort")

    @property
    def in_registry(self) -> bool:
        """Whether it is a setting of an engine, which a comparison can vary."""
        return self.variable in VARIABLES

    def flags(self) -> dict[str, str]:
        """Engine -> the flag that does the same there, by the registry."""
        return dict(VARIABLES[self.variable].peers) if self.in_registry else {}

    def to_json(self) -> dict[str, Any]:
        """The change as JSON, its flags included."""
        return {
            "variable": self.variable,
            "from": self.from_value,
            "to": self.to_value,
            "why": self.why,
            "effort": self.effort,
            "refuted_by": self.refuted_by,
            "flags": self.flags(),
            "prediction": None if self.prediction is None else dict(self.prediction),
        }


OUTSIDE = {
    "replicas": "instances of the server behind a load balancer",
    "client_connections": "connections and processes of the sender",
    "network_path": "what lies between client and engine",
    "hardware": "the card, or how many of them",
}
"""What a change may name beside the registry."""


@dataclass(frozen=True)
class Bound:
    """Where a cause's advice applies and where it does not, by a claim of the catalogue."""

    claim: str
    text: str


@dataclass(frozen=True)
class Line:
    """One number that speaks for a finding. figure is a field of Evidence, or "" for what follows from several."""

    text: str
    figure: str = ""


@dataclass(frozen=True)
class Finding:
    """A cause that matches. score, from 0 to 1, is how much of the trouble it explains; lines are its evidence.

    follows_from: the cause, also found, whose consequence this one is.
    """

    cause: str
    score: float
    lines: tuple[Line, ...]
    changes: tuple[Change, ...] = ()
    bounds: tuple[Bound, ...] = ()
    follows_from: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {
            "cause": self.cause,
            "score": round(self.score, 3),
            "evidence": [{"text": line.text, "figure": line.figure or None} for line in self.lines],
            "bounds": [{"claim": bound.claim, "text": bound.text} for bound in self.bounds],
            "changes": [change.to_json() for change in self.changes],
            "follows_from": self.follows_from,
        }


@dataclass(frozen=True)
class Missing:
    """A cause that can't be told: `needs` are fields of Evidence of which it takes one or more."""

    cause: str
    needs: tuple[str, ...]

    def measures(self) -> list[str]:
        """What to measure, one line each."""
        return [how_to_know(name) for name in self.needs]

    def to_json(self) -> dict[str, Any]:
        """What is missing, as JSON."""
        return {"cause": self.cause, "needs": list(self.needs), "measure": self.measures()}
