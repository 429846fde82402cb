"""From a stored run to its report as plain data: what its kind says, and what every report says besides.

Secrets never get in (experiments/withheld.py). No clock is read and nothing is drawn by chance, so a run has one
report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.report import parts
from experiments.report.comparison import first_pair
from experiments.report.definitions import definitions
from experiments.report.document import Document, Findings, Note, Section, labels_of
from experiments.report.kinds import BUILDERS
from experiments.report.reproduce import command_of
from experiments.report.titles import of_anything, of_nothing
from experiments.report.words import Words
from experiments.store import DamagedRecord, Run, Store, StoredRecord
from experiments.store.identity import code_hash
from experiments.withheld import without_secrets

# Kinds whose report draws events; of the others no record is read for it.
DRAWS_EVENTS = ("bench", "compare")


@dataclass(frozen=True)
class Lost:
    """A record whose events can't be read, and why."""

    arm: int
    repeat: int
    reason: str


@dataclass(frozen=True)
class Source:
    """A run whose report is asked for: the run without secrets, and where its records are."""

    run: Run
    store: Store

    def records(self) -> Iterator[StoredRecord | Lost]:
        """All of its records without secrets, one after another, by arm and repeat."""
        for arm, repeat in sorted(self.store.record_keys(self.run.id)):
            try:
                found = self.store.record(self.run.id, arm, repeat)
            except DamagedRecord as error:
                yield Lost(arm, repeat, str(error))
            else:
                yield StoredRecord(arm, repeat, without_secrets(found)[0])

    def drawn(self) -> tuple[list[StoredRecord], str | None]:
        """(the records that the report draws, why they can't be shown): the first repeat of each arm."""
        if self.run.kind not in DRAWS_EVENTS or self.run.result is None:
            return [], None
        keys = self.store.record_keys(self.run.id)
        first = min((repeat for _, repeat in keys), default=None)
        found = []
        try:
            for arm, repeat in sorted(keys):
                if repeat == first:
                    record = self.store.record(self.run.id, arm, repeat)
                    found.append(StoredRecord(arm, repeat, without_secrets(record)[0]))
        except DamagedRecord as error:
            return [], str(error)
        return found, None


def source_of(run_id: str, store: Store) -> Source:
    """InputError for an unknown run."""
    return Source(given_away(store.get_run(run_id)), store)


def given_away(run: Run) -> Run:
    """The run without secrets."""
    clean, _ = without_secrets({"spec": run.spec, "result": run.result, "error": run.error,
                                "environment": run.environment, "version": run.version})  # fmt: skip
    return replace(run, **clean)


def document_of(source: Source, words: Words) -> Document:
    """The report of a run in the language."""
    records, damaged = source.drawn()
    return document(source.run, records, words, damaged)


def document(run: Run, records: Sequence[StoredRecord], words: Words, damaged: str | None = None) -> Document:
    """The report of a run without secrets whose records are at hand; damaged: why there are none."""
    shown = first_pair(records) if run.kind == "compare" else list(records)
    found, result = _findings(run, shown, words), run.result or {}
    command = command_of(run.kind, run.spec)
    label = str(result["provenance"]) if result.get("provenance") else None
    made = Document(
        lang=words.lang,
        title=found.title,
        subtitle=words("run", id=run.id, time=run.created_at[:16].replace("T", " ")),
        question=found.question,
        answer=found.answer,
        label=label,
        mark=found.mark,
        more=found.more,
        cautions=_cautions(run, found.cautions, damaged, words),
        caveats=_caveats(found, label, result, words),
        sections=tuple(part for part in found.sections if part is not None),
        definitions=dict(definitions(found.defined, words.lang)),
        command=command,
        data={
            "run": run.to_json(),
            "records": [{"arm": one.arm, "repeat": one.repeat, "record": one.record} for one in shown],
        },
    )
    return replace(made, sections=(*made.sections, *_ending(run, made, words)))


def _findings(run: Run, records: Sequence[StoredRecord], words: Words) -> Findings:
    if run.result is None:
        return of_nothing(run, words)
    builder = BUILDERS.get(run.kind, of_anything)
    try:
        return builder(run, run.result, records, words)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        if run.code == code_hash():  # a fault of this version, not a result of another
            raise
        found = of_anything(run, run.result, records, words)
        return replace(found, cautions=(*found.cautions, Note(words("other_shape"))))


def _cautions(run: Run, told: Sequence[Note], damaged: str | None, words: Words) -> tuple[Note, ...]:
    """What was cut short, what the kind itself warns of, what is lost, and the run's own warnings."""
    result = run.result or {}
    found: list[Note | None] = [
        Note(words("cancelled" if run.kind == "compare" else "partial")) if result.get("cancelled") else None,
        *told,
        None if damaged is None else Note(words("damaged", reason=damaged), "missing"),
    ]
    warnings = result.get("warnings")
    if isinstance(warnings, list):
        found += [Note(words("warning", text=text), "worse") for text in map(str, warnings)]
    return tuple(note for note in found if note is not None)


def _caveats(found: Findings, label: str | None, result: Mapping[str, Any], words: Words) -> tuple[str, ...]:
    """What a reader must know before they rely on it."""
    simulated = [words("c_simulated")] if label == "simulated" else []
    here = [words("c_here")] if result else []
    return tuple(text for text in [*simulated, *found.caveats, *here] if text)


def _ending(run: Run, made: Document, words: Words) -> Iterator[Section]:
    """Caveats, set-up, environment, definitions, labels, the command, and where the raw data is."""
    result = run.result or {}
    set_up, environment = parts.set_up(run, result, words), parts.environment(run, result, words)
    labels = labels_of(replace(made, sections=(*made.sections, set_up, environment)))
    ending = (
        parts.notes(words("caveats"), made.caveats),
        set_up,
        environment,
        parts.meanings(made.definitions, words),
        parts.sources(labels, words),
        parts.reproduce(made.command, words),
        parts.notes(words("raw_title"), [words("raw_how", id=run.id)]),
    )
    return (part for part in ending if part is not None)
