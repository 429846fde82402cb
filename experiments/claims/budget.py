"""How long the check of a claim takes, and what it may take where time is short.

Owns running.toml and the rule of quick mode. Knows nothing of how a check runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments.claims.catalogue import Claim
from experiments.store import Store
from experiments.store.identity import environment, spec_hash

# All rows of quick mode together: under 15 minutes, with room for the row that ends it and for start-up.
QUICK_S = 840.0
# A row may take this many times what is expected of it, and never less than LEAST_S, before quick mode ends it.
SLACK, LEAST_S = 2.0, 30.0
# Arithmetic and simulations run whatever time is left: they take seconds, and no machine is too slow for them.
ALWAYS = ("arithmetic", "simulated")


@dataclass(frozen=True)
class Running:
    """What running.toml says of a claim; `simulate` are arguments of `trilemma simulate`, None where none asks it."""

    seconds: float
    steps: int = 1
    simulate: str | None = None


@cache
def running() -> Mapping[str, Running]:
    """The table by claim id."""
    rows = tomllib.loads(Path(__file__).with_name("running.toml").read_text("utf-8"))
    return {name: Running(**row) for name, row in rows.items()}


def steps_of(claim_id: str) -> int:
    """How many experiments a check runs one after another."""
    row = running().get(claim_id)
    return 1 if row is None else row.steps


def estimates(
    specs: Mapping[str, Mapping[str, Any]], store: Store, where: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Seconds of each row by claim id: what its newest finished run of the same spec took on this machine, with any
    version of the code, else the table's. where: this machine with the models of the specs, if it is known."""
    return {name: _took_here(spec, store, where) or running()[name].seconds for name, spec in specs.items()}


def _took_here(spec: Mapping[str, Any], store: Store, where: Mapping[str, Any] | None) -> float | None:
    runs = store.find("claim", spec_hash(spec), environment=where or environment(spec), limit=1)
    return seconds_of((runs[0].result or {}) if runs else {})


def seconds_of(result: Mapping[str, Any]) -> float | None:
    """What a check took, from its result; None where it judged an experiment of before (`ran_at`)."""
    took = None if result.get("ran_at") else result.get("took_s")
    return float(took) if isinstance(took, int | float) else None


def shortest_first(claims: Iterable[Claim], seconds: Mapping[str, float]) -> list[Claim]:
    """The order of quick mode: what always runs, then the rest by what it is expected to take."""
    return sorted(claims, key=lambda claim: (claim.kind not in ALWAYS, seconds[claim.id], claim.id))


def allowed_s(seconds: float, left_s: float, *, can_stop: bool) -> float | None:
    """What a row may take of the time that is left; None where it can't be expected to end in it.

    can_stop: whether the check can be ended halfway. One that can't needs room for its slack too.
    """
    most = max(LEAST_S, SLACK * seconds)
    if (seconds if can_stop else most) > left_s:
        return None
    return min(most, left_s)
