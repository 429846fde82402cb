"""Shapes of well-known models by name (presets.toml): facts only, so that a calculator works without a file at hand."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

ALIASES = {"embedded": "smollm2-135m"}
# What a hub's name adds to a model's without changing its shape. Versions and dates are no such thing.
_TUNED = re.compile(r"(-(instruct|chat|base|it|hf))+(-v0\.1)?$|-v0\.1$")


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Every preset: name -> the fields of its config.json. TOML has no null: the file says "null" where it matters."""
    found = tomllib.loads(files("ledger").joinpath("presets.toml").read_text(encoding="utf-8"))
    return {
        name: {field: None if value == "null" else value for field, value in config.items()}
        for name, config in found.items()
    }


def preset_config(name: str) -> tuple[str, dict[str, object]] | None:
    """(name, config) of a preset, whatever its letter case; None when there is none of that name.

    A hub's name will do: "meta-llama/Llama-3.1-8B-Instruct" is llama-3.1-8b.
    """
    wanted = _known_as(name)
    return None if wanted is None else (wanted, dict(presets()[wanted]))


def nearest_presets(name: str) -> list[str]:
    """Presets whose names are like this one, the most alike first."""
    return difflib.get_close_matches(_plain(name), presets(), n=3, cutoff=0.4)


def _known_as(name: str) -> str | None:
    plain = _plain(name)
    for wanted in (plain, _TUNED.sub("", plain)):
        wanted = ALIASES.get(wanted, wanted)
        if wanted in presets():
            return wanted
    return None


def _plain(name: str) -> str:
    return name.strip().lower().rpartition("/")[2]
