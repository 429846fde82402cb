"""What a report of any kind is called, and how a run that has no builder of its own, or no result, is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.kinds import KINDS
from experiments.report import parts
from experiments.report.document import Findings, section
from experiments.report.words import WORDS, Words
from experiments.store import Run, StoredRecord

Result = Mapping[str, Any]
Records = Sequence[StoredRecord]
Builder = Callable[[Run, Result, Records, Words], Findings]
OUTSIDE = ("warnings", "run_id", "environment")


def kind_name(run: Run, words: Words) -> str:
    """The kind as a reader calls it."""
    return words(f"kind_{run.kind}") if f"kind_{run.kind}" in WORDS else words("kind_other", kind=run.kind)


def said_of(run: Run) -> str:
    """What was asked in a line, as the list of runs says it; nothing for a spec that this version can't read."""
    try:
        return str(KINDS[run.kind].says(run.spec))
    except (KeyError, TypeError, IndexError, ValueError):  # a spec of an older version, or of a kind that isn't here
        return ""


def title_of(run: Run, words: Words) -> str:
    """The kind and what was asked."""
    kind, said = kind_name(run, words), said_of(run)
    return words("title_of", kind=kind, said=said) if said else kind


def label_of(result: Result) -> str:
    """Where the figures of a result are from."""
    return str(result.get("provenance") or "measured")


def of_anything(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """All of a result, for a kind that has no builder of its own."""
    said = next((result[name] for name in ("sentence", "verdict", "reason") if isinstance(result.get(name), str)), None)
    label = result.get("provenance")
    shown = {name: value for name, value in result.items() if name not in OUTSIDE}
    return Findings(
        title_of(run, words),
        words("q_other", kind=kind_name(run, words)),
        said or words(f"state_{run.state}"),
        (section(words("result"), str(label) if label else None, *parts.anything(shown, words)),
         parts.other_terms(result, words)),
    )  # fmt: skip


def of_nothing(run: Run, words: Words) -> Findings:
    """A run that has no result: how it ended."""
    state = words(f"state_{run.state}")
    told = words("no_result_error", state=state, error=run.error) if run.error else words("no_result", state=state)
    return Findings(title_of(run, words), words("q_other", kind=kind_name(run, words)), told)
