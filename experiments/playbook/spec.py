"""What a ladder is asked to do: workload, objectives, where it starts, its steps, and how often each is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import Value
from experiments.playbook.recipes import FOOT_OF_LADDER, STARTS, get_recipe
from experiments.playbook.steps import FOOT, STEPS, Step, get_step, own_step
from experiments.spec import BenchSpec, held_because, needed_values, parse_repeats, refuse_unknown, whole
from experiments.summary import CURVES, GOODPUT
from ledger.errors import InputError

DEFAULT_REPEATS = 5
QUALITY_ITEMS = 24  # of each slice; more make a smaller loss tell
MOST_STEPS = 20
# What quality may lose where the objectives do not say: a hundredth of the answers.
QUALITY_DROP = 0.01
AIMS = (GOODPUT[0], *(name for name, *_ in CURVES))


@dataclass(frozen=True)
class LadderSpec(BenchSpec):
    """recipe fills in workload, steps, start, aim and clients that are not given. steps: names of the playbook's.

    own: steps of the user's, (name, variable -> value), after those. start: what `settings` are put over, the foot of
    the ladder or the engine's defaults. repeats None is "auto". quality_items: most items a slice in the quality guard.
    aim: the curve by which return is counted.
    """

    recipe: str = "rollout"
    start: str = FOOT_OF_LADDER
    steps: tuple[str, ...] = ()
    own: tuple[tuple[str, dict[str, Value]], ...] = ()
    repeats: int | None = DEFAULT_REPEATS
    quality_items: int = QUALITY_ITEMS
    aim: str | None = None

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> LadderSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields are the recipe's."""
        refuse_unknown(cls, spec)
        recipe = get_recipe(str(spec.get("recipe") or "rollout"))
        of_a_run = {item.name for item in fields(BenchSpec)}
        given = {name: value for name, value in spec.items() if name in of_a_run}
        if given.get("workload") is None:
            given["workload"] = recipe.workload
        if given.get("rate_rps") is None and given.get("concurrency") is None and "concurrency" not in spec:
            given["concurrency"] = recipe.concurrency
        common = asdict(BenchSpec.from_dict(given))
        if common["endpoint"] is not None:
            raise InputError("--endpoint", common["endpoint"], "none: the steps are settings of the engine")
        aim = spec.get("aim") or recipe.aim
        made = cls(
            **common,
            recipe=recipe.name,
            start=_start(spec.get("start") or recipe.start),
            steps=_names(spec.get("steps"), recipe.steps),
            own=_own(spec.get("own") or ()),
            repeats=parse_repeats(spec.get("repeats", DEFAULT_REPEATS)),
            quality_items=whole("--quality-items", spec.get("quality_items", QUALITY_ITEMS), 1, 100_000),
            aim=_aim(aim, common["slo"]),
        )
        if not 1 <= len(made.all_steps()) <= MOST_STEPS:
            raise InputError("--steps", len(made.all_steps()), f"1 to {MOST_STEPS} steps")
        chosen = {**made._beneath(), **made.settings}
        held_because(chosen.items(), set_by_user=chosen)
        EngineConfig.from_settings(made.start_settings())
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON, with repeats "auto" in its written form."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**found, "own": [[name, changes] for name, changes in self.own], "repeats": self.repeats or "auto"}

    def all_steps(self) -> tuple[Step, ...]:
        """The playbook's, then the user's own."""
        return (*(get_step(name) for name in self.steps), *(own_step(name, changes) for name, changes in self.own))

    def start_settings(self) -> dict[str, Value]:
        """Everything that is set before the first step, with what that needs."""
        chosen = {**self._beneath(), **self.settings}
        return {**needed_values(chosen.items()), **chosen}

    def most_drop(self) -> float:
        """How much quality may be lost against the start, a share of the answers."""
        from experiments.metrics import parse_slo

        limits = [one.limit for one in parse_slo(self.slo) if one.name == "quality_drop"]
        return limits[0] if limits else QUALITY_DROP

    def _beneath(self) -> dict[str, Value]:
        return dict(FOOT) if self.start == FOOT_OF_LADDER else {}


def _start(given: Any) -> str:
    if given not in STARTS:
        raise InputError("--start", given, ", ".join(STARTS))
    return str(given)


def _names(given: Any, otherwise: Sequence[str]) -> tuple[str, ...]:
    """Names of steps; none given are the recipe's, an empty list is none."""
    names = tuple(otherwise if given is None else map(str, given))
    for name in names:
        get_step(name)
    if len(set(names)) < len(names):
        raise InputError("--steps", ",".join(names), "each step once")
    return names


def _own(given: Any) -> tuple[tuple[str, dict[str, Value]], ...]:
    found: list[tuple[str, dict[str, Value]]] = []
    for name, changes in given:
        step = own_step(str(name), changes, (*STEPS, *(other for other, _ in found)))
        found.append((step.name, dict(step.changes)))
    return tuple(found)


def _aim(given: Any, slo: str | None) -> str:
    """The curve that counts: goodput where there are objectives for it, else throughput, unless somebody chose."""
    if given is None:
        return GOODPUT[0] if slo else "output_tokens_per_s"
    if given not in AIMS:
        raise InputError("--aim", given, ", ".join(AIMS))
    if given == GOODPUT[0] and not slo:
        raise InputError("--slo", "", "objectives beside --aim goodput_rps, as ttft_p95=0.5,itl_p99=0.05")
    return str(given)
