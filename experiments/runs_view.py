"""What runs have in common and where they differ, as rows for a table. Knows no page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report.words import MISSING, number
from experiments.store import Run

# Figures of a result that most kinds have, by their place in it.
FIGURES = {
    "output_tokens_per_s": ("output_tokens_per_s",),
    "ttft_s.p95": ("ttft_s", "p95"),
    "itl_s.p95": ("itl_s", "p95"),
    "cost_per_million_output_tokens": ("cost_per_million_output_tokens",),
}
LEFT_OUT = ("predictions", "guess_pct")
MOST_TEXT = 200


@dataclass(frozen=True)
class Fact:
    """One property of every run that is shown: its name, a text for each run, and whether those differ."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs don't all have the same."""
        return len(set(self.values)) > 1


def facts(runs: Sequence[Run]) -> list[Fact]:
    """How the runs came about and went: state, spec, code, environment and figures, in this order."""
    told = [dict(_facts(run)) for run in runs]
    names = dict.fromkeys(name for one in told for name in one)
    return [Fact(name, tuple(one.get(name, MISSING) for one in told)) for name in names]


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    yield "kind", run.kind
    yield "state", run.state
    yield "created_at", run.created_at[:19].replace("T", " ") + " UTC"
    for name, value in run.spec.items():
        if name not in LEFT_OUT and value not in (None, [], {}):
            yield from _flat(name, value)
    yield from _arm_figures(run.result)
    if run.version is not None:
        yield "version", run.version
    if run.code is not None:
        yield "code", run.code
    for name, value in (run.environment or {}).items():
        yield from _flat(f"environment.{name}", value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"


def _arm_figures(result: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """The figures of a result of one arm, or of each arm by its value."""
    if not result:
        return
    yield from _figures("", result)
    for arm in result.get("arms") or ():
        if isinstance(arm, Mapping) and isinstance(arm.get("metrics"), Mapping):
            yield from _figures(f"{arm.get('value', arm.get('values'))}: ", arm["metrics"])


def _figures(prefix: str, metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, way in FIGURES.items():
        value: Any = metrics
        for key in way:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            yield f"{prefix}{name}", number(value, 4)
