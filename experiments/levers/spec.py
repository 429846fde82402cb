"""What an experiment with levers is asked to do: a baseline with every chosen lever off, an arm each, one with all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.variables import Value
from experiments.levers.catalogue import LEVERS, SIMULATED, USUAL, Lever, lever
from experiments.spec import BenchSpec, needed_values, refuse_unknown, whole
from ledger.errors import InputError

WORKLOAD, REPEATS, MOST_REPEATS, CLIENTS = "assistant", 3, 20, 16
SIMULATOR = "simulator"
Chosen = tuple[str, Value]


@dataclass(frozen=True)
class LeversSpec(BenchSpec):
    """levers: (name, value it goes to), each once.

    Cost is work only where the device is never idle. So without a rate and a concurrency of its own the load is a
    closed loop of CLIENTS. gpu: None measures on the engine here, "this" or a card of the catalogue simulates it.
    """

    workload: str = WORKLOAD
    levers: tuple[Chosen, ...] = ()
    repeats: int = REPEATS
    gpu: str | None = None

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> LeversSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        of_a_run = {item.name for item in fields(BenchSpec)}
        given = {"workload": WORKLOAD, **{name: value for name, value in spec.items() if name in of_a_run}}
        if given.get("rate_rps") is None and given.get("concurrency") is None:
            given["concurrency"] = CLIENTS
        common = asdict(BenchSpec.from_dict(given))
        if common["endpoint"] is not None:
            raise InputError("--endpoint", common["endpoint"], "none: the levers are settings of the engine")
        gpu = spec.get("gpu") or None
        chosen = _chosen(spec.get("levers") or (USUAL if gpu is None else SIMULATED), gpu)
        for name, _ in chosen:
            if LEVERS[name].variable in common["settings"]:
                accepted = f"any variable but {LEVERS[name].variable}, which the lever {name} moves"
                raise InputError("--set", LEVERS[name].variable, accepted)
        repeats = whole("repeats", spec.get("repeats", REPEATS), 1, MOST_REPEATS, f"1 to {MOST_REPEATS}")
        made = cls(**common, levers=chosen, repeats=repeats, gpu=None if gpu is None else str(gpu))
        for one in made.specs():
            one.config()
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "levers": [list(pair) for pair in self.levers]}

    def pulled(self) -> list[Lever]:
        """The chosen levers."""
        return [LEVERS[name] for name, _ in self.levers]

    def off(self) -> dict[str, Value]:
        """Their variables in the baseline."""
        return {one.variable: one.off for one in self.pulled()}

    def arm_values(self) -> list[dict[str, Value]]:
        """What the levers' variables are in each arm: the baseline, each lever alone, and all where there are two."""
        alone = [{LEVERS[name].variable: value} for name, value in self.levers]
        every = {name: value for one in alone for name, value in one.items()}
        return [{}, *alone, *([every] if len(alone) > 1 else [])]

    def specs(self) -> list[BenchSpec]:
        """Each arm as a spec of its own."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        arms = [{**self.settings, **self.off(), **values} for values in self.arm_values()]
        needed = needed_values(pair for arm in arms for pair in arm.items())
        return [BenchSpec(**{**common, "settings": {**needed, **arm}}) for arm in arms]

    def names(self) -> list[str]:
        """How the arms are called."""
        alone = [name for name, _ in self.levers]
        return ["baseline", *alone, *(["together"] if len(alone) > 1 else [])]


def parse_levers(text: str | None) -> list[list[Any]] | None:
    """`NAME,NAME=VALUE,...` as [[name, value or None], ...]; None for None. InputError for an empty one."""
    if text is None:
        return None
    found = [part.strip().partition("=") for part in text.split(",")]
    if not all(name.strip() and (value.strip() or not equals) for name, equals, value in found):
        raise InputError("--levers", text, "NAME,NAME=VALUE,... of " + ", ".join(LEVERS))
    return [[name.strip(), value.strip() or None] for name, _, value in found]


def _chosen(given: Sequence[Any], gpu: Any) -> tuple[Chosen, ...]:
    try:
        pairs = [(one, None) if isinstance(one, str) else (str(one[0]), one[1]) for one in given]
    except (TypeError, IndexError, KeyError):
        raise InputError("levers", given, "a list of names, or of [name, value]") from None
    found = tuple((name, lever(name).value(value)) for name, value in pairs)
    if len({name for name, _ in found}) < len(found):
        raise InputError("levers", ", ".join(name for name, _ in found), "each lever once")
    wordless = ", ".join(name for name, one in LEVERS.items() if not one.needs_text)
    for name, _ in found:
        if gpu is not None and LEVERS[name].needs_text:
            raise InputError("lever", name, f"{wordless}: what is simulated has no text")
    return found
