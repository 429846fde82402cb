"""What the checks that run evaluations share: what is scored, and the fields of an evidence row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.quality.evaluation import ALL_TEXTS, Evaluation
from experiments.quality.items import Item, default_items
from experiments.quality.slices import ALL
from experiments.quality.spec import at_most
from experiments.quality.texts import Text, default_texts

Arms = Mapping[str, Mapping[str, Any]]
Evaluate = Callable[[Arms, Mapping[str, Any], Sequence[Item], Sequence[Text]], Evaluation]
"""(candidates by label, baseline, items, texts) -> what was found."""

CHARACTERS = 1000  # of a text, for each request that is asked for
# Its items take as many tokens as those of all other slices, and are answered by weights no differently.
TOO_LONG = "long_context"
OTHER_LANGUAGE = "chinese"  # the embedded model is a stranger to it: its perplexity there says little
KEPT = ("text", "tokens", "baseline_perplexity", "perplexity", "change_pct", "change_ci95", "kl_mean", "kl_ci95",
        "top1_agreement", "top1_ci95")  # fmt: skip
OF_ITEMS = ("items", "accuracy", "ci95", "lost", "gained", "change_points", "change_ci95", "logprob_change",
            "logprob_ci95", "scored_by", "verdict")  # fmt: skip


def texts(options: Mapping[str, Any]) -> list[Text]:
    """The project's own English texts; with num_requests the first thousand characters of each for every request."""
    size = CHARACTERS * int(options["num_requests"]) if options.get("num_requests") else None
    return [Text(text.name, text.content[:size]) for text in default_texts() if text.name != OTHER_LANGUAGE]


def items(options: Mapping[str, Any]) -> list[Item]:
    """The project's own items but for the long ones; with num_requests at most so many a slice, taken evenly."""
    short = [item for item in default_items() if item.slice != TOO_LONG]
    return at_most(short, int(options["num_requests"]) if options.get("num_requests") else None)


def with_settings(options: Mapping[str, Any], arms: Arms) -> dict[str, dict[str, Any]]:
    """The arms over the user's settings."""
    given = options.get("settings") or {}
    return {label: {**given, **arm} for label, arm in arms.items()}


def of_text(found: Evaluation, label: str) -> Mapping[str, Any]:
    """The row of all texts together."""
    rows = found.text_rows[label]
    return next((row for row in rows if row["text"] == ALL_TEXTS), rows[-1])


def text_evidence(found: Evaluation, label: str, **fields: Any) -> list[dict[str, Any]]:
    """A row a text, the last of all of them."""
    return [
        {"part": label, **fields, **{key: row[key] for key in KEPT}, "provenance": "measured"}
        for row in found.text_rows[label]
    ]


def item_evidence(found: Evaluation, label: str, against: str) -> list[dict[str, Any]]:
    """A row a slice of one candidate, the last of all items."""
    return [
        {
            "part": f"{label} against {against}, {'all items' if row.slice == ALL else row.slice}",
            **{key: getattr(row, key) for key in OF_ITEMS},
            "provenance": "measured",
        }
        for row in found.rows
        if row.candidate == label
    ]


def changed(row: Mapping[str, Any]) -> str:
    """The change of a text row's perplexity with its interval."""
    bounds = row["change_ci95"]
    interval = "" if bounds is None else f" [{bounds[0]:+.2f}, {bounds[1]:+.2f}]"
    return f"{row['change_pct']:+.2f} %{interval}"


def low_and_high(row: Mapping[str, Any]) -> tuple[float, float]:
    """The bounds of the change of perplexity, %; the change itself twice where there is no interval."""
    bounds = row["change_ci95"]
    return (row["change_pct"],) * 2 if bounds is None else (bounds[0], bounds[1])
