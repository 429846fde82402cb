"""Shapes of well-known models by name (presets.toml): facts only, so that a calculator works without a file at hand."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

ALIASES = {"embedded": "smollm2-135m", "smollm2-135m-instruct": "smollm2-135m"}


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Every preset: name -> the fields of its config.json. TOML has no null: the file says "null" where it matters."""
    found = tomllib.loads(files("ledger").joinpath("presets.toml").read_text(encoding="utf-8"))
    return {
        name: {field: None if value == "null" else value for field, value in config.items()}
        for name, config in found.items()
    }


def preset_config(name: str) -> tuple[str, dict[str, object]] | None:
    """(name, config) of a preset, whatever its letter case; None when there is none of that name."""
    wanted = ALIASES.get(name.strip().lower(), name.strip().lower())
    found = presets().get(wanted)
    return None if found is None else (wanted, dict(found))
