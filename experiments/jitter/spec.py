"""What a jitter experiment is asked to do: arms that are each a few settings over common ones, on one workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.variables import Value, parse_value
from experiments.spec import BenchSpec, held_because, needed_values, refuse_unknown, whole
from ledger.errors import InputError

Arm = tuple[str, dict[str, Value]]
WORKLOAD, REPEATS, MOST_REPEATS, MOST_ARMS = "long-prompts", 3, 20, 8
# Whole prompts, the longest of the workload in one step: what all but `chunked` begin from.
WHOLE: dict[str, Value] = {"chunked_prefill": "off", "max_num_batched_tokens": 2048}
ARMS: tuple[Arm, ...] = (
    ("whole prompts", dict(WHOLE)),
    ("chunked", {"chunked_prefill": "on", "max_num_batched_tokens": 64}),
    ("max_queue", {**WHOLE, "max_num_seqs": 4, "max_queue": 2}),
    ("rate limit", {**WHOLE, "rate_limit_rps": 1.0}),
    ("disaggregated", {**WHOLE, "disaggregation": "on"}),
)
ACCEPTED = "NAME:VARIABLE=VALUE,VARIABLE=VALUE"


@dataclass(frozen=True)
class JitterSpec(BenchSpec):
    """arms: (name, settings over `settings`); the first is what the others are compared with."""

    workload: str = WORKLOAD
    arms: tuple[Arm, ...] = ARMS
    repeats: int = REPEATS

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> JitterSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        of_a_run = {item.name for item in fields(BenchSpec)}
        given = {"workload": WORKLOAD, **{name: value for name, value in spec.items() if name in of_a_run}}
        common = asdict(BenchSpec.from_dict(given))
        if common["endpoint"] is not None:
            raise InputError("--endpoint", common["endpoint"], "none: the arms are settings of the engine")
        repeats = whole("repeats", spec.get("repeats", REPEATS), 1, MOST_REPEATS, f"1 to {MOST_REPEATS}")
        made = cls(**common, arms=_arms(spec.get("arms", ARMS)), repeats=repeats)
        for one in made.specs():
            held_because(one.settings.items(), set_by_user=one.settings)
            one.config()
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "arms": [[name, dict(settings)] for name, settings in self.arms]}

    def specs(self) -> list[BenchSpec]:
        """Each arm as a spec of its own."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        chosen = [{**self.settings, **settings} for _, settings in self.arms]
        return [
            BenchSpec(**{**common, "settings": {**needed_values(settings.items()), **settings}}) for settings in chosen
        ]

    def names(self) -> list[str]:
        """How the arms are called."""
        return [name for name, _ in self.arms]


def parse_arms(texts: Sequence[str]) -> list[list[Any]]:
    """`NAME:VARIABLE=VALUE,...` options as [[name, settings], ...]; InputError for anything else."""
    found = []
    for text in texts:
        name, separator, rest = text.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
        if not separator or not name.strip() or not all(equals for _, equals, _ in pairs):
            raise InputError("--arm", text, ACCEPTED)
        found.append([name.strip(), {key.strip(): value.strip() for key, _, value in pairs}])
    return found


def _arms(given: Any) -> tuple[Arm, ...]:
    try:
        pairs = [(str(name), dict(settings)) for name, settings in given]
    except (TypeError, ValueError):
        raise InputError("arms", given, f"a list of {ACCEPTED}") from None
    if not 1 <= len(pairs) <= MOST_ARMS:
        raise InputError("arms", len(pairs), f"1 to {MOST_ARMS} arms")
    if len({name for name, _ in pairs}) < len(pairs):
        raise InputError("arms", ", ".join(name for name, _ in pairs), "names that are all different")
    return tuple((name, {key: parse_value(key, value) for key, value in arm.items()}) for name, arm in pairs)
