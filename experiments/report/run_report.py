"""The report of any run: which builder makes it, and what every report ends with.

One self-contained HTML file, or the same as JSON. Secrets never get in (experiments/withheld.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.report import parts
from experiments.report.comparison import comparison_report, first_pair, title_of_comparison
from experiments.report.definitions import definitions
from experiments.report.factorial import of_factorial
from experiments.report.html import tag
from experiments.report.kinds import (
    Builder,
    Report,
    of_anything,
    of_bench,
    of_claim,
    of_eval,
    of_nothing,
    of_profile,
    of_speculation,
)
from experiments.report.page import html_page
from experiments.report.reproduce import command_of
from experiments.report.sweep import of_sweep
from experiments.report.verdict import verdict_sentence
from experiments.report.words import Words
from experiments.store import DamagedRecord, Run, Store, StoredRecord
from experiments.version import version
from experiments.withheld import without_secrets
from ledger.errors import InputError

FORMAT, VERSION = "trilemma-report", 1
BUILDERS: dict[str, Builder] = {
    "bench": of_bench,
    "claim": of_claim,
    "eval": of_eval,
    "speculation": of_speculation,
    "profile": of_profile,
    "sweep": of_sweep,
    "factorial": of_factorial,
}
# Kinds whose report draws events; of the others no record is read.
DRAWS_EVENTS = ("bench", "compare")


def records_for(run: Run, store: Store) -> tuple[list[StoredRecord], str | None]:
    """(the records that the run's report draws, why they can't be shown): the first repeat of each arm."""
    if run.kind not in DRAWS_EVENTS or run.result is None:
        return [], None
    try:
        keys = store.record_keys(run.id)
        first = min((repeat for _, repeat in keys), default=None)
        wanted = [(arm, repeat) for arm, repeat in keys if repeat == first]
        return [StoredRecord(arm, repeat, store.record(run.id, arm, repeat)) for arm, repeat in wanted], None
    except DamagedRecord as error:
        return [], str(error)


def report_html(run_id: str, store: Store, lang: str = "en") -> str:
    """The report of a run as one HTML page; InputError for an unknown run or language."""
    words = Words(lang)
    stored = store.get_run(run_id)
    records, damaged = records_for(stored, store)
    return html_of(stored, records, words, damaged)


def comparison_html(run: Run, records: Sequence[StoredRecord], lang: str = "en") -> str:
    """The report of a finished comparison as one HTML page in English ("en") or Simplified Chinese ("zh").

    Of `records` the first repeat with both arms is drawn as a timeline and embedded; without one that section is left
    out. Raises InputError for a run without a comparison's result, or an unknown language.
    """
    words = Words(lang)
    if "curves" not in (run.result or {}):
        raise InputError("run", run.id, "a comparison with at least one finished pair")
    return html_of(run, first_pair(records), words)


def factorial_html(run: Run, lang: str = "en") -> str:
    """The report of a finished 2 x 2 experiment; InputError for a run without such a result, or an unknown language."""
    words = Words(lang)
    if "effects" not in (run.result or {}):
        raise InputError("run", run.id, "a 2 x 2 experiment with at least two finished repeats")
    return html_of(run, [], words)


def html_of(stored: Run, records: Sequence[StoredRecord], words: Words, damaged: str | None = None) -> str:
    """The page of a run whose records are at hand."""
    run, shown = _given_away(stored), [replace(one, record=without_secrets(one.record)[0]) for one in records]
    result = run.result or {}
    data = {
        "run": run.to_json(),
        "records": [{"arm": one.arm, "repeat": one.repeat, "record": one.record} for one in shown],
    }
    lost = None if damaged is None else tag("p", words("damaged", reason=damaged), class_="missing")
    if run.kind == "compare" and "curves" in result:
        title, sections = comparison_report(run, shown, words)
        return html_page(title, (*sections, lost), data, words)
    report = _built(run, shown, words)
    sections = (
        parts.top(run, report.title, words),
        parts.verdict(report.verdict, result, words, *report.more),
        lost,
        *report.sections,
        parts.settings(run, result, words),
        parts.environment(run, result, words),
        parts.meanings(report.defined, words) if report.defined else None,
        parts.reproduce(run, words),
        tag("p", words("raw"), class_="muted"),
    )
    return html_page(report.title, sections, data, words)


def report_json(run_id: str, store: Store, lang: str = "en") -> dict[str, Any]:
    """The report as JSON: the run with its result, the verdict in words, the definitions, the command."""
    words = Words(lang)
    run = _given_away(store.get_run(run_id))
    if run.kind == "compare" and "curves" in (run.result or {}):
        title, verdict = title_of_comparison(run.result or {}, words), verdict_sentence(run.result or {}, lang)
        defined: Sequence[str] = parts.ALL_METRICS
    else:
        report = _built(run, [], words)
        title, verdict = report.title, " ".join(filter(None, [report.verdict, *report.more]))
        defined = report.defined
    return {
        "format": FORMAT, "version": VERSION, "written_by": version(), "title": title, "verdict": verdict,
        "run": run.to_json(), "definitions": dict(definitions(defined, lang)),
        "reproduce": command_of(run.kind, run.spec),
    }  # fmt: skip


def report_text(run_id: str, store: Store, lang: str = "en") -> str:
    """The JSON form as a text for a file."""
    return json.dumps(report_json(run_id, store, lang), ensure_ascii=False, allow_nan=False, indent=1)


def _built(run: Run, records: Sequence[StoredRecord], words: Words) -> Report:
    if run.result is None:
        return of_nothing(run, words)
    builder = BUILDERS.get(run.kind, of_anything)
    try:
        return builder(run, run.result, records, words)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        # A result of another version than the builder knows is still shown whole.
        return of_anything(run, run.result, records, words)


def _given_away(run: Run) -> Run:
    """The run without secrets."""
    clean, _ = without_secrets({"spec": run.spec, "result": run.result, "error": run.error,
                                "environment": run.environment})  # fmt: skip
    return replace(run, **clean)
