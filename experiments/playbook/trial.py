"""One step's comparison: the settings as they are against the same with the step, by the rule of every comparison.

A step may be a bundle of variables that only make sense together; it is compared as one change, and its result names
every variable that moved. Owns that spec and where a step's records lie among those of the whole ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value
from experiments.playbook.spec import LadderSpec
from experiments.playbook.steps import Step
from experiments.quality.kept import key_of
from experiments.quality.spec import changes_outputs
from experiments.spec import BenchSpec, CompareSpec, needed_values
from experiments.store import Store
from experiments.store.identity import code_hash
from experiments.summary import GOODPUT, Curve

Settings = dict[str, Value]


@dataclass(frozen=True)
class StepSpec(CompareSpec):
    """A comparison whose arms differ by a bundle: the settings before, and those after."""

    before: Settings = field(default_factory=dict)
    after: Settings = field(default_factory=dict)

    def arms(self) -> tuple[BenchSpec, BenchSpec]:
        """The settings as they are, and those with the step."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        first, second = (BenchSpec(**{**common, "settings": dict(one)}) for one in (self.before, self.after))
        return first, second

    def chosen(self) -> list[tuple[str, Value]]:
        """Every value of the settings with the step."""
        return list(self.after.items())

    def derives(self) -> tuple[str, ...]:
        """What the variables of the bundle change besides themselves."""
        return tuple(dict.fromkeys(name for one in self.changed() for name in VARIABLES[one].derives))

    def changed(self) -> dict[str, tuple[Value, Value]]:
        """Variable -> its value before and after."""
        return changed(self.before, self.after)

    def held_equal(self) -> dict[str, Value]:
        """Settings that are the same in both arms."""
        moved = self.changed()
        return {name: value for name, value in self.configs()[0].settings().items() if name not in moved}

    def more_curves(self) -> tuple[Curve, ...]:
        """Goodput, where there are objectives."""
        return (GOODPUT,) if self.slo else ()


def with_step(settings: Mapping[str, Value], step: Step) -> tuple[Settings, dict[str, str]]:
    """(settings with the step and with what its values need, needed variable -> the value that needs it).

    InputError when the engine refuses them together.
    """
    needed = needed_values(step.changes.items())
    after = {**settings, **needed, **step.changes}
    EngineConfig.from_settings(after)
    because = {
        name: f"{key}={value}"
        for key, value in step.changes.items()
        for name in needed_values([(key, value)])
        if name not in step.changes
    }
    return after, because


def complete(settings: Mapping[str, Value]) -> Settings:
    """Every variable and its value."""
    return EngineConfig.from_settings(settings).settings()


def changed(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, tuple[Value, Value]]:
    """Variable -> its two values, of those that differ when everything that is not set is its default."""
    first, second = complete(before), complete(after)
    return {name: (value, second[name]) for name, value in first.items() if value != second[name]}


def touches_outputs(before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """Whether what differs can change what the model answers."""
    return any(changes_outputs(name) for name in changed(before, after))


def spec_of_step(spec: LadderSpec, name: str, before: Settings, after: Settings) -> StepSpec:
    """The comparison of a step, on the ladder's load, objectives and price."""
    common = {item.name: getattr(spec, item.name) for item in fields(BenchSpec)}
    moved = changed(before, after)
    values = tuple(", ".join(f"{key}={pair[place]}" for key, pair in moved.items()) for place in (0, 1))
    return StepSpec(
        **{**common, "settings": before},
        variable=name,
        values=(values[0], values[1]),
        repeats=spec.repeats,
        before=before,
        after=after,
    )


class StepRecords:
    """The records of one step among those of the ladder's run: two arms behind those of the step before.

    `store` None keeps nothing.
    """

    def __init__(self, store: Store | None, run_id: str, place: int, spec: StepSpec) -> None:
        self._store, self._run_id, self._first = store, run_id, 2 * place
        self._step = spec.variable
        self._key = key_of("step", code_hash(), sorted(asdict(spec).items()))

    def add_record(self, run_id: str, arm: int, repeat: int, record: dict[str, Any]) -> None:
        """Store the record of a repeat, with the step that it belongs to."""
        record["ladder"] = {"step": self._step, "key": self._key}
        if self._store is not None:
            self._store.add_record(run_id, self._first + arm, repeat, record)

    def kept(self) -> dict[tuple[int, int], dict[str, Any]]:
        """What an earlier start of this run has measured of the very same comparison by the same code, by (arm,
        repeat)."""
        if self._store is None:
            return {}
        stored = self._store.intact_records(self._run_id, (self._first, self._first + 1))
        return {
            (arm - self._first, repeat): record
            for (arm, repeat), record in stored.items()
            if (record.get("ladder") or {}).get("key") == self._key
        }
