"""What a 2 x 2 experiment is asked to do: two variables of two values each, everything else equal in four arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.variables import Value, parse_value, variable
from experiments.spec import (
    DEFAULT_REPEATS,
    BenchSpec,
    held_because,
    needed_values,
    parse_repeats,
    parse_vary,
    refuse_unknown,
    refuse_without_effect,
)
from experiments.statistics import AUTO_LOOKS
from ledger.errors import InputError

Factor = tuple[str, tuple[Value, Value]]
ACCEPTED = "two variables, each once: --vary A=A0,A1 --vary B=B0,B1"


@dataclass(frozen=True)
class FactorialSpec(BenchSpec):
    """factors[0] is "the first", factors[1] "the second" variable, each with (baseline, candidate).

    repeats None means "auto": on until every effect is decided, or 20.
    """

    factors: tuple[Factor, Factor] = (("kv_layout", ("contiguous", "paged")), ("batching", ("static", "continuous")))
    repeats: int | None = DEFAULT_REPEATS

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> FactorialSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        of_a_run = {item.name for item in fields(BenchSpec)}
        common = asdict(BenchSpec.from_dict({name: value for name, value in spec.items() if name in of_a_run}))
        if common["endpoint"] is not None:
            accepted = "none: a server has settings of its own, so nothing of a 2 x 2 would reach it"
            raise InputError("endpoint", common["endpoint"], accepted)
        factors = _factors(spec.get("factors", cls.factors))
        for name, _ in factors:
            if name in common["settings"]:
                raise InputError("--set", name, f"any variable but {name}, which is one of the two that are varied")
        made = cls(**common, factors=factors, repeats=parse_repeats(spec.get("repeats", DEFAULT_REPEATS)))
        held_because(made.chosen(), set_by_user={**common["settings"], **dict(factors)})
        for name, _ in factors:
            refuse_without_effect(name, [arm.config() for arm in made.arms()])
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON, with repeats "auto" in its written form."""
        factors = [[name, list(values)] for name, values in self.factors]
        return {**asdict(self), "factors": factors, "repeats": self.repeats if self.repeats else "auto"}

    def chosen(self) -> list[tuple[str, Value]]:
        """Every value that somebody chose: the settings, and the two of each variable."""
        varied = [(name, value) for name, values in self.factors for value in values]
        return [*self.settings.items(), *varied]

    def held_because(self) -> dict[str, dict[str, Value]]:
        """Settings held in all arms because a value needs them: name -> {"value", "because": "NAME=VALUE"}."""
        return held_because(self.chosen())

    def arm_values(self) -> list[dict[str, Value]]:
        """What the two variables are in each arm: baseline, the first alone, the second alone, both."""
        (first, (a0, a1)), (second, (b0, b1)) = self.factors
        return [{first: a, second: b} for b in (b0, b1) for a in (a0, a1)]

    def arms(self) -> list[BenchSpec]:
        """Each arm as a spec of its own, with every value that any of them needs."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        needed = needed_values(self.chosen())
        return [
            BenchSpec(**{**common, "settings": {**needed, **self.settings, **values}}) for values in self.arm_values()
        ]

    def arm_names(self) -> list[str]:
        """How the arms are called."""
        return [" ".join(f"{name}={value}" for name, value in values.items()) for values in self.arm_values()]

    def looks(self) -> tuple[int, ...]:
        """After how many repeats the effects are judged; more than one look only with repeats "auto"."""
        return AUTO_LOOKS if self.repeats is None else (self.repeats,)


def parse_factors(texts: Sequence[str]) -> list[list[Any]]:
    """Parse two `--vary NAME=A,B` options: [[name, [A, B]], [name, [A, B]]]. InputError for any other number."""
    if len(texts) != 2:
        raise InputError("--vary", " ".join(texts), ACCEPTED)
    return [list(parse_vary([text])) for text in texts]


def _factors(given: Any) -> tuple[Factor, Factor]:
    try:
        (first, first_values), (second, second_values) = given
        pairs = ((str(first), list(first_values)), (str(second), list(second_values)))
    except (TypeError, ValueError):
        raise InputError("factors", given, ACCEPTED) from None
    found: list[Factor] = []
    for name, values in pairs:
        known = variable(name).name
        if len(values) != 2 or str(values[0]) == str(values[1]):
            raise InputError("--vary", f"{known}={','.join(map(str, values))}", f"two different values of {known}")
        found.append((known, (parse_value(known, values[0]), parse_value(known, values[1]))))
    if found[0][0] == found[1][0]:
        raise InputError("--vary", found[0][0], "two different variables; for two values of one: trilemma compare")
    return found[0], found[1]
