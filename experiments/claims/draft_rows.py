"""What the checks of speculative decoding share: what is measured, and the fields of an evidence row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Measure = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.speculation -> its JSON; the run that holds it is named in `run_id`."""

REPEATS = 3
WIDE = "embedded-wide"
TRAINED = ("draft", "medusa", "eagle", "self")
FIGURES = ("k", "alpha", "acceptance_rate", "tokens_per_pass", "drafted_share", "draft_time_share", "v", "c",
           "speedup", "speedup_ci95", "verdict", "identical", "prompts", "repeats")  # fmt: skip


def spec_of(options: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A spec with the user's settings, repeats, prompts a task (num_requests) and seed over the check's own fields."""
    repeats = options.get("repeats")
    given: dict[str, Any] = {
        "settings": {**(fields.pop("settings", None) or {}), **(options.get("settings") or {})},
        "repeats": int(repeats) if repeats and repeats != "auto" else REPEATS,
        "seed": options.get("seed") or 0,
    }
    if options.get("num_requests"):
        given["prompts"] = options["num_requests"]
    return {**fields, **given}


def models(options: Mapping[str, Any]) -> list[str]:
    """The embedded model and its enlarged form, or the one that the user asks about."""
    from core_engine.model.embedded import ENLARGED
    from core_engine.variables import VARIABLES

    asked = (options.get("settings") or {}).get("model")
    return [str(asked)] if asked else [str(VARIABLES["model"].default), ENLARGED]


def rows_of(result: Mapping[str, Any], part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name of the task or batch, row) of a part of the result: "tasks" or "batches"."""
    for one in result[part]:
        for row in one["rows"]:
            yield one["name"], row


def evidence(name: str, row: Mapping[str, Any], result: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A row of a measured form: its figures, the model's speed-up beside, and what the advisor says."""
    advice = row["advice"]
    return {
        "part": name,
        "form": row["form"],
        **fields,
        **{key: row[key] for key in FIGURES},
        "predicted_speedup": row["predicted"]["speedup"],
        "break_even_alpha": advice["needed_alpha"],
        "advice": " ".join(filter(None, (advice["verdict"], advice["reason"]))),
        "run_id": result["run_id"],
        "provenance": "measured",
    }


def missing(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a form that could not run, with the reason."""
    return [{"part": "not measured", **one, "run_id": result["run_id"]} for one in result["unavailable"]]


def times(value: float | None) -> str:
    """A speed-up in words."""
    return "unknown" if value is None else f"{value:.2f}x"


def made_rows(result: Mapping[str, Any], **asked: float) -> list[Mapping[str, Any]]:
    """Rows of constructed drafts that were made so (alpha, k, c)."""
    part = result["constructed"]
    return [
        row for row in part["rows"] if all(part["made"][row["form"]][name] == value for name, value in asked.items())
    ]


def highest(values: Sequence[float | None]) -> float | None:
    """The largest that is known."""
    known = [value for value in values if value is not None]
    return max(known, default=None)
