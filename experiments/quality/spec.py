"""What an evaluation is asked to do: settings, items and texts, validated once, as plain JSON that the store keeps.

Knows no engine beyond its registry of variables, so the command line refuses bad input without loading torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value, parse_value, variable
from experiments.quality.items import Item, default_items, load_items
from experiments.quality.predictions import Prediction, checked_predictions
from experiments.quality.slices import ALL
from experiments.spec import (
    checked_settings,
    held_because,
    needed_values,
    refuse_unknown,
    refuse_without_effect,
    whole,
)
from ledger.errors import InputError

NOTHING = "none"
LEAST_WINDOW, MOST_WINDOW = 16, 2048
# Short requests fill a step only when many run together; what they score does not depend on it.
SCORED_TOGETHER = 32
STEP_TOKENS = 512  # of one step: a prefill of 512 tokens is a quarter faster a token than one of 128


@dataclass(frozen=True)
class EvalSpec:
    """One baseline and any number of candidates on the same items and texts.

    settings are all candidates'; vary (name, values) makes one candidate a value, arms one of each entry: settings of
    its own. baseline: settings of the baseline over its default, which is the candidates' settings with every variable
    that can change outputs at its default: the unquantized model. Its model is theirs, and so is its dtype unless dtype
    is what is asked about. items and texts: files, empty for the project's own, "none" for none.
    limit: most items a slice, taken evenly. items_hash: of the items, so that a run is never resumed on others.
    speed: time the steps of every candidate beside the baseline's. predictions: what was expected before any result was
    seen, by candidate (see predictions.py); None where nobody was asked, empty where that was skipped.
    """

    settings: dict[str, Value] = field(default_factory=dict)
    baseline: dict[str, Value] = field(default_factory=dict)
    vary: tuple[str, tuple[Value, ...]] | None = None
    arms: tuple[dict[str, Value], ...] = ()
    items: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    limit: int | None = None
    window_tokens: int = MOST_WINDOW
    seed: int = 0
    items_hash: str = ""
    speed: bool = False
    predictions: dict[str, Prediction] | None = None

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> EvalSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        made = cls(
            settings=checked_settings(spec.get("settings")),
            baseline=checked_settings(spec.get("baseline")),
            vary=_vary(spec.get("vary")),
            arms=tuple(checked_settings(one) for one in spec.get("arms") or ()),
            items=_files("--items", spec.get("items")),
            slices=tuple(spec.get("slices") or ()),
            texts=_files("--texts", spec.get("texts")),
            limit=None if spec.get("limit") is None else whole("--limit", spec["limit"], 1, 1_000_000),
            window_tokens=whole("window_tokens", spec.get("window_tokens", MOST_WINDOW), LEAST_WINDOW, MOST_WINDOW),
            seed=whole("--seed", spec.get("seed", 0), 0, 2**63 - 1),
            items_hash=str(spec.get("items_hash", "")),
            speed=bool(spec.get("speed", False)),
        )
        made._refuse_what_is_set_twice()
        if NOTHING in made.items and NOTHING in made.texts:
            raise InputError("--items", NOTHING, "items, or texts to score instead")
        made.baseline_config()
        labels = made.candidates()
        if made.vary is not None:
            refuse_without_effect(made.vary[0], labels.values())
        return replace(made, predictions=checked_predictions(spec.get("predictions"), labels))

    def _refuse_what_is_set_twice(self) -> None:
        if self.vary and self.arms:
            raise InputError("--vary", self.vary[0], "candidates of one kind: --vary or --candidate")
        if self.vary and self.vary[0] in self.settings:
            name = self.vary[0]
            raise InputError("--set", name, f"any variable but {name}, which is the one that is varied")
        for name in (name for arm in self.arms for name in arm if name in self.settings):
            raise InputError("--candidate", name, f"a variable that is not set for all: {name} is")

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**found, "vary": None if self.vary is None else [self.vary[0], list(self.vary[1])]}

    def baseline_config(self) -> EngineConfig:
        """The engine's configuration of the baseline."""
        kept = {
            name: value for name, value in self.settings.items() if name in self._held() or not changes_outputs(name)
        }
        return scoring_config({**kept, **self.baseline})

    def _held(self) -> set[str]:
        """What the baseline shares though it can change outputs: the model, and dtype unless that is the question."""
        varied = {*([self.vary[0]] if self.vary else []), *(name for arm in self.arms for name in arm)}
        others = {name for name in {*self.settings, *varied} if changes_outputs(name)} - {"model", "dtype"}
        asks_something_else = bool(others) or bool(varied - {"dtype"})
        return {"model", "dtype"} if asks_something_else else {"model"}

    def candidates(self) -> dict[str, EngineConfig]:
        """Configurations by label. One that is the baseline is left out, unless an A/A check is all that was asked."""
        if self.arms:
            found = {_label(arm): scoring_config({**self.settings, **arm}) for arm in self.arms}
        elif self.vary is None:
            found = {_label(self.settings): scoring_config(self.settings)}
        else:
            name, values = self.vary
            found = {f"{name}={value}": scoring_config({**self.settings, name: value}) for value in values}
        base = self.baseline_config()
        others = {label: config for label, config in found.items() if config != base}
        return others if others or not (self.vary or self.arms or self.baseline) else found

    def read_items(self) -> list[Item]:
        """The items asked for; InputError for an unreadable file, an unknown slice, or other items than before."""
        items = _read(self.items)
        names = list(dict.fromkeys(item.slice for item in items))
        for name in self.slices:
            if name not in names:
                raise InputError("--slices", name, ", ".join(names) or "no slice: there are no items")
        if ALL in names:
            raise InputError("slice", ALL, f"any other name: {ALL} stands for all slices together")
        chosen = [item for item in items if not self.slices or item.slice in self.slices]
        found = at_most(chosen, self.limit)
        if self.items_hash and items_hash(found) != self.items_hash:
            raise InputError(
                "items", self.items_hash, f"the items that the run began with; now they are {items_hash(found)}"
            )
        return found


def _label(settings: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "settings"


def changes_outputs(name: str) -> bool:
    """Whether a variable can change what a model answers."""
    return "quality" in VARIABLES[name].moves


def items_hash(items: Sequence[Item]) -> str:
    """16 hexadecimal digits of the items' content and order."""
    return hashlib.blake2b(repr([asdict(item) for item in items]).encode(), digest_size=8).hexdigest()


def _read(paths: Sequence[str]) -> list[Item]:
    if not paths:
        return default_items()
    return [item for path in paths if path != NOTHING for item in load_items(path)]


def at_most(items: Sequence[Item], limit: int | None) -> list[Item]:
    """At most `limit` of each slice, spread evenly, since neighbours in a file are often alike."""
    if limit is None:
        return list(items)
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item.slice, []).append(place)
    kept = {own[i * len(own) // n] for own in places.values() if (n := min(limit, len(own))) for i in range(n)}
    return [item for place, item in enumerate(items) if place in kept]


def scoring_config(settings: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration for settings that somebody chose; InputError for what does not go together."""
    chosen = checked_settings(settings)
    held_because(chosen.items(), set_by_user=chosen)
    together: dict[str, Value] = {"max_num_seqs": SCORED_TOGETHER, "max_num_batched_tokens": STEP_TOKENS}
    return EngineConfig.from_settings({**together, **needed_values(chosen.items()), **chosen})


def _vary(given: Any) -> tuple[str, tuple[Value, ...]] | None:
    if not given:
        return None
    name, values = given
    name = variable(str(name)).name
    parsed = tuple(dict.fromkeys(parse_value(name, value) for value in values))
    if not parsed:
        raise InputError("--vary", name, "NAME=A,B,... with at least one value")
    return name, parsed


def _files(option: str, given: Any) -> tuple[str, ...]:
    paths = tuple(str(path) if path == NOTHING else str(Path(path).resolve()) for path in given or ())
    for path in paths:
        if path != NOTHING and not Path(path).is_file():
            raise InputError(option, path, f"an existing file, or {NOTHING}")
    return paths
