"""What a config.json may leave out: the class defaults of each model_type (class_defaults*.toml). Facts only.

A section nested in a multimodal config is usually saved as its difference from the class, so that everything may be
missing. A flat config has to state the sizes that make the model what it is: filling those in would be a guess.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

STATED_IN_A_FLAT_CONFIG = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


@cache
def class_defaults() -> dict[str, dict[str, object]]:
    """Defaults (integers, booleans, pairs of integers, a dtype) by model_type; a default of None is not listed."""
    found: dict[str, dict[str, object]] = {}
    for name in ("class_defaults.toml", "class_defaults_hybrid.toml"):
        found |= tomllib.loads(files("ledger").joinpath(name).read_text(encoding="utf-8"))
    return found


def with_defaults(model_type: str, values: Mapping[str, object], nested: bool) -> dict[str, object]:
    """`values` over the class defaults; a null stays null, because the classes keep it apart from an absent key."""
    known = class_defaults().get(model_type, {})
    kept = {name: value for name, value in known.items() if nested or name not in STATED_IN_A_FLAT_CONFIG}
    return {**kept, **values}
