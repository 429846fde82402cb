"""What a profile of a step is asked to show, validated once, as plain JSON that the store keeps.

Knows no engine beyond its registry of variables, so the command line refuses bad input without loading torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import Value, parse_value, variable
from experiments.spec import checked_settings, held_because, needed_values, refuse_unknown, refuse_without_effect, whole
from experiments.step_probe import ProbedStep
from ledger.errors import InputError

PHASES = ("decode", "prefill")
DEFAULT_STEP = "decode:1x256"
DEFAULT_REPEATS = 12
MOST_REPEATS, MOST_SEQUENCES, MOST_TOKENS, MOST_VALUES = 200, 256, 2**20, 6
# What one step can show; others act on how steps follow one another.
ACTS_ON_A_STEP = (
    "fused_ops", "graph", "attention", "kv_splits", "kernels", "threads", "dtype", "weights", "weight_group",
    "weight_symmetric", "head_weights", "kv_dtype", "kv_key_axis", "kv_protect", "block_size",
)  # fmt: skip
SETTABLE = (*ACTS_ON_A_STEP, "model", "device")
STEP_FORM = (
    f"decode:SEQUENCESxTOKENS or prefill:SEQUENCESxTOKENS, up to {MOST_SEQUENCES} sequences and {MOST_TOKENS:,} tokens "
    f"each, as {DEFAULT_STEP}"
)


@dataclass(frozen=True)
class ProfileSpec:
    """One step, and the values of one variable that it is profiled under; without `vary` one arm with the settings.

    step: as parse_step reads it. A decode's tokens are those of a sequence with the newest one. repeats: timed steps
    of each arm.
    """

    step: str = DEFAULT_STEP
    vary: tuple[str, tuple[Value, ...]] | None = None
    settings: dict[str, Value] = field(default_factory=dict)
    repeats: int = DEFAULT_REPEATS

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> ProfileSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        settings = checked_settings(spec.get("settings"))
        for name in settings:
            if name not in SETTABLE:
                raise InputError("--set", name, f"a variable that acts on a single step: {', '.join(SETTABLE)}")
        made = cls(
            step=step_text(parse_step(str(spec.get("step", DEFAULT_STEP)))),
            vary=_vary(spec.get("vary")),
            settings=settings,
            repeats=whole("--repeats", spec.get("repeats", DEFAULT_REPEATS), 1, MOST_REPEATS),
        )
        if made.vary is not None:
            name, values = made.vary
            if name in settings:
                raise InputError("--set", name, f"any variable but {name}, which is the one that is varied")
            held_because(made.chosen(), set_by_user={**settings, name: values})
            refuse_without_effect(name, made.configs())
        else:
            held_because(made.chosen(), set_by_user=settings)
            made.configs()
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "vary": None if self.vary is None else [self.vary[0], list(self.vary[1])]}

    def values(self) -> tuple[Value | None, ...]:
        """The arms' values of the variable, the first is what the others are compared with; None alone without one."""
        return (None,) if self.vary is None else self.vary[1]

    def names(self) -> list[str]:
        """What the arms are called."""
        return ["settings"] if self.vary is None else [f"{self.vary[0]}={value}" for value in self.vary[1]]

    def chosen(self) -> list[tuple[str, Value]]:
        """Every value that somebody chose."""
        varied = [] if self.vary is None else [(self.vary[0], value) for value in self.vary[1]]
        return [*self.settings.items(), *varied]

    def configs(self) -> list[EngineConfig]:
        """The engine's configuration of each arm."""
        needed = {**needed_values(self.chosen()), **self.settings}
        if self.vary is None:
            return [EngineConfig.from_settings(needed)]
        name, values = self.vary
        return [EngineConfig.from_settings({**needed, name: value}) for value in values]


def parse_step(text: str) -> ProbedStep:
    """decode:8x256 is 8 sequences of 256 tokens, the last of each new; prefill:1x512 one of 512, all new. InputError
    for anything else."""
    found = re.fullmatch(r"(decode|prefill):(\d{1,7})x(\d{1,7})", text.strip())
    if found is None:
        raise InputError("--step", text, STEP_FORM)
    step = ProbedStep(found[1], int(found[2]), int(found[3]))
    if not (1 <= step.batch <= MOST_SEQUENCES and 1 <= step.seq_len <= MOST_TOKENS):
        raise InputError("--step", text, STEP_FORM)
    return step


def step_text(step: ProbedStep) -> str:
    """The step as it is written."""
    return f"{step.phase}:{step.batch}x{step.seq_len}"


def parse_vary(text: str) -> list[Any]:
    """["NAME", ["A", "B", ...]] of `--vary NAME=A,B,...`; InputError for what is not of that form."""
    name, separator, values = text.partition("=")
    if not separator or "=" in values:
        raise InputError("--vary", text, "one variable with its values: NAME=A,B,...")
    return [name.strip(), [value.strip() for value in values.split(",")]]


def _vary(given: Any) -> tuple[str, tuple[Value, ...]] | None:
    if not given:
        return None
    name, values = given
    name = variable(str(name)).name
    if name not in ACTS_ON_A_STEP:
        raise InputError("--vary", name, f"a variable that acts on a single step: {', '.join(ACTS_ON_A_STEP)}")
    parsed = tuple(parse_value(name, value) for value in values)
    if not 2 <= len(parsed) <= MOST_VALUES or len(set(parsed)) < len(parsed):
        shown = f"{name}={','.join(map(str, parsed))}"
        raise InputError(
            "--vary", shown, f"2 to {MOST_VALUES} different values: NAME=A,B,...; the first is the baseline"
        )
    return name, parsed
