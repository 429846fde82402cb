"""What the choices of the Speculation page mean, as the spec of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.variables import VARIABLES, Value
from experiments.speculation.spec import BATCHES, FORMS
from experiments.speculation.tasks import TASKS
from ledger.errors import InputError

TARGETS = ("embedded", "embedded-wide")
ANSWERS = (32, 64, 128)
REPEATS = (3, 5, 9)
SWEEPS: dict[str, tuple[int, ...]] = {"32": BATCHES, "8": tuple(size for size in BATCHES if size <= 8), "off": ()}
DTYPES = ("auto", "bf16", "fp32")


@dataclass(frozen=True)
class Choice:
    """What was chosen. sweep: a key of SWEEPS; model: a target, or the path of another one."""

    forms: Sequence[str] = FORMS
    tasks: Sequence[str] = TASKS
    num_draft_tokens: int = 4
    max_tokens: int = 64
    repeats: int = 5
    sweep: str = "32"
    model: str = "embedded"
    dtype: str = "auto"

    def spec(self) -> dict[str, Any]:
        """The spec of the run; InputError when nothing is to be measured."""
        if not self.tasks:
            raise InputError("tasks", "none", "at least one kind of task")
        chosen: dict[str, Value] = {"model": self.model, "dtype": self.dtype}
        return {
            "settings": {name: value for name, value in chosen.items() if value != VARIABLES[name].default},
            "forms": list(self.forms),
            "tasks": list(self.tasks),
            "num_draft_tokens": self.num_draft_tokens,
            "max_tokens": self.max_tokens,
            "repeats": self.repeats,
            "batches": list(SWEEPS[self.sweep]),
        }
