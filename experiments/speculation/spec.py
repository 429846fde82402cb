"""What a run of forms of draft is asked to do, validated once, as plain JSON that the store keeps.

Knows no engine beyond its registry of variables, so the command line refuses bad input without loading torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value, parse_value
from experiments.spec import checked_settings, held_because, needed_values, refuse_unknown, whole
from experiments.speculation.expected import Prediction, checked_predictions
from experiments.speculation.tasks import TASKS, most_prompts
from ledger.errors import InputError

OFF = "off"
FORMS = tuple(name for name in VARIABLES["speculation"].choices if name != OFF)
BATCHES = (1, 2, 4, 8, 16, 32)
DEFAULT_REPEATS = 5
# The run's own: each part sets them, so that every pass is of the batch and the length it is counted as.
OWN: dict[str, Value] = {"prefix_cache": "off", "draft_control": "fixed"}
SET_BY_THE_RUN = ("speculation", "num_draft_tokens", "max_num_seqs", *OWN)


@dataclass(frozen=True)
class SpeculationSpec:
    """Every form on the same prompts.

    settings: of the engine, the same with and without drafts. tasks: kinds whose prompts are answered one at a time,
    `prompts` of each (None: all), up to `max_tokens` an answer. batches: so many answers of `batch_task` at once, none
    to leave them out. constructed: drafts that are right as often as we want, which show the curve and the losing side.
    predictions: what the reader expected of each form; None where nobody was asked, empty where that was skipped.
    """

    settings: dict[str, Value] = field(default_factory=dict)
    forms: tuple[str, ...] = FORMS
    tasks: tuple[str, ...] = TASKS
    num_draft_tokens: int = 4
    prompts: int | None = None
    max_tokens: int = 64
    repeats: int = DEFAULT_REPEATS
    batches: tuple[int, ...] = BATCHES
    batch_task: str = "copy"
    constructed: bool = True
    seed: int = 0
    predictions: dict[str, Prediction] | None = None

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> SpeculationSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        settings = checked_settings(spec.get("settings"))
        for name in SET_BY_THE_RUN:
            if name in settings:
                raise InputError(
                    "--set", name, f"any variable but {', '.join(SET_BY_THE_RUN)}, which the run sets itself"
                )
        made = cls(
            settings=settings,
            forms=_named("--forms", spec.get("forms", FORMS), FORMS),
            tasks=_named("--tasks", spec.get("tasks", TASKS), TASKS),
            num_draft_tokens=int(parse_value("num_draft_tokens", spec.get("num_draft_tokens", 4))),
            prompts=None if spec.get("prompts") is None else whole("--prompts", spec["prompts"], 1, most_prompts()),
            max_tokens=whole("--max-tokens", spec.get("max_tokens", 64), 8, 1024),
            repeats=whole("--repeats", spec.get("repeats", DEFAULT_REPEATS), 1, 20),
            batches=tuple(whole("--batches", size, 1, 64) for size in spec.get("batches", BATCHES)),
            batch_task=_named("--batch-task", [spec.get("batch_task", "copy")], TASKS)[0],
            constructed=bool(spec.get("constructed", True)),
            seed=whole("--seed", spec.get("seed", 0), 0, 2**63 - 1),
        )
        if not (made.tasks or made.batches or made.constructed):
            raise InputError("--tasks", "none", "at least one task, batch size or constructed draft")
        held_because(settings.items(), set_by_user=settings)
        made.config()
        return replace(made, predictions=checked_predictions(spec.get("predictions"), made.forms))

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        listed = {name: list(getattr(self, name)) for name in ("forms", "tasks", "batches")}
        return {**asdict(self), **listed}

    def config(self, form: str = OFF, batch: int = 1, k: int | None = None) -> EngineConfig:
        """The engine's configuration for a form of draft, so many sequences at once and k drafts (the spec's own)."""
        drafts: dict[str, Value] = {} if form == OFF else {"speculation": form}
        drafts["num_draft_tokens"] = self.num_draft_tokens if k is None else k
        needed = needed_values([*self.settings.items(), *drafts.items()])
        return EngineConfig.from_settings({**needed, **self.settings, **OWN, **drafts, "max_num_seqs": batch})


def _named(option: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    for name in given:
        if name not in known:
            raise InputError(option, name, ", ".join(known))
    return tuple(name for name in known if name in given)
