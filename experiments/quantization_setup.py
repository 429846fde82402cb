"""Which candidates a choice of formats means, as the spec of an evaluation. Every format is a candidate of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.variables import VARIABLES, W4A16, Value
from experiments.quality.spec import EvalSpec
from ledger.errors import InputError

WEIGHT_CHOICES = tuple(name for name in VARIABLES["weights"].choices if name != "none")
KV_CHOICES: dict[str, dict[str, Value]] = {
    "int8": {"kv_dtype": "int8"},
    "int4": {"kv_dtype": "int4"},
    "int4-token": {"kv_dtype": "int4", "kv_key_axis": "token"},
    "int2": {"kv_dtype": "int2"},
    "int2-outliers": {"kv_dtype": "int2", "kv_protect": "outliers"},
}
DEFAULT_WEIGHTS = ("w8a8", *W4A16)
DEFAULT_KV = ("int8", "int4")
DTYPES = ("bf16", "fp32", "auto")
LIMITS = (None, 100, 50, 20)


@dataclass(frozen=True)
class Choice:
    """What was chosen. group and symmetric are of W4A16, head of all that is quantized here; limit: items a slice."""

    weights: Sequence[str]
    kv: Sequence[str]
    group: str = "64"
    symmetric: str = "on"
    head: str = "16bit"
    dtype: str = "bf16"
    model: str = "embedded"
    limit: int | None = None

    def spec(self) -> dict[str, Any]:
        """The spec of the evaluation, with timed steps; InputError when nothing is chosen."""
        arms = [*map(self._weights_arm, self.weights), *(KV_CHOICES[name] for name in self.kv)]
        if not arms:
            raise InputError("formats", "none", "at least one format of the weights or of the KV cache")
        settings: dict[str, Value] = {"dtype": self.dtype}
        if self.model != VARIABLES["model"].default:
            settings["model"] = self.model
        return {"settings": settings, "arms": arms, "limit": self.limit, "speed": True}

    def _weights_arm(self, name: str) -> dict[str, Value]:
        found: dict[str, Value] = {"weights": name}
        if name in W4A16:
            found |= {"weight_group": self.group, "weight_symmetric": self.symmetric}
        if name != "as-stored":  # it keeps the head that the file has
            found["head_weights"] = self.head
        return {key: value for key, value in found.items() if key == "weights" or value != VARIABLES[key].default}


@dataclass(frozen=True)
class Asked:
    """A candidate by what it changes of the baseline; group and dtype as they hold for it."""

    changed: dict[str, Value]
    group: str
    dtype: str


def asked(spec: dict[str, Any]) -> dict[str, Asked]:
    """The candidates of a stored spec by label. InputError when what it names is no longer there."""
    checked = EvalSpec.from_dict(spec)
    base = checked.baseline_config().settings()
    found = {label: config.settings() for label, config in checked.candidates().items()}
    return {
        label: Asked(
            {name: value for name, value in own.items() if value != base[name]},
            str(own["weight_group"]),
            str(own["dtype"]),
        )
        for label, own in found.items()
    }
