"""The raw data of a run as one long table, the same for CSV and Parquet.

A row a figure, a text or an event, in the columns of COLUMNS:

    part        run, spec, result, environment, memory, request, emission, preemption, work (a step that a request was
                in), step, or lost (a record that can't be read)
    arm, repeat of the record, empty outside of records; arm 0 is the baseline, repeats count from 1
    request     its id
    step        the step's index
    name        what it is: a path in the result, such as arms[0].metrics.ttft_s.p95, or a field
    time_ns     when, in ns from the run's zero
    tokens      of an emission, or of a request in a step
    value       a number in the unit of its name; empty for a text
    text        a text, a truth value, or a whole number that a float can't hold
    provenance  measured, computed, simulated, estimated, assumed or given

Nothing is rounded, so every metric can be computed again from the rows. Records are read one after another.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.report.build import Lost, Source
from experiments.report.document import Document
from experiments.report.parts import COSTS
from experiments.report.titles import label_of
from experiments.spreadsheet import safe
from experiments.store import StoredRecord

COLUMNS = ("part", "arm", "repeat", "request", "step", "name", "time_ns", "tokens", "value", "text", "provenance")
WHOLE = ("arm", "repeat", "step", "time_ns", "tokens")
EXACT = 2**53
# What a user set, and what a figure is computed from or with, whatever stands around it.
GIVEN = ("config", "settings", "workload", "held_equal", "held_because", "derived", "values", "spec", "variable", "slo",
         "factors", "over", "seed", "repeats_asked", "from", "to", "order")  # fmt: skip
COMPUTED = (*COSTS, "knees", "limits", "in_other_terms", "predicted", "attribution", "saved_per_million_requests")
Row = tuple[Any, ...]


def csv_bytes(document: Document, source: Source) -> bytes:
    """The table as CSV in UTF-8; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    made = io.StringIO(newline="")
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rows in batches(document, source):
        writer.writerows([_shown(value) for value in row] for row in rows)
    return made.getvalue().encode()


def parquet_bytes(document: Document, source: Source) -> bytes:
    """The table as Parquet, a row group a record; what the run is and the command stand in the file's metadata too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {name: pa.int64() for name in WHOLE} | {"value": pa.float64()}
    about = {"run": source.run.id, "title": document.title, "answer": document.answer, "command": document.command}
    note = {b"trilemma-report": json.dumps(about, ensure_ascii=False).encode()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS], metadata=note)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for rows in batches(document, source):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def batches(document: Document, source: Source) -> Iterator[list[Row]]:
    """The rows in the order of the file: those of the run, then each record's."""
    yield list(_of_run(document, source))
    for found in source.records():
        if isinstance(found, Lost):
            yield [_row("lost", found.arm, found.repeat, text=found.reason)]
        elif rows := list(_of_record(found)):
            yield rows


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return safe(value) if isinstance(value, str) else repr(value)


def _row(
    part: str,
    arm: int | None = None,
    repeat: int | None = None,
    *,
    request: Any = None,
    step: int | None = None,
    name: str | None = None,
    time_ns: int | None = None,
    tokens: int | None = None,
    value: float | None = None,
    text: str | None = None,
    provenance: str | None = None,
) -> Row:
    shown = None if request is None else str(request)
    return (part, arm, repeat, shown, step, name, time_ns, tokens, value, text, provenance)


def _of_run(document: Document, source: Source) -> Iterator[Row]:
    run = source.run
    told = {"id": run.id, "kind": run.kind, "state": run.state, "created_at": run.created_at, "version": run.version,
            "code": run.code, "error": run.error, "title": document.title, "question": document.question,
            "answer": document.answer, "command": document.command}  # fmt: skip
    yield from _leaves("run", told, None)
    yield from _leaves("spec", run.spec, "given")
    yield from _leaves("environment", run.environment or {}, "measured")
    yield from _leaves("result", run.result or {}, label_of(run.result or {}))


def _leaves(
    part: str, value: Any, provenance: str | None, path: str = "", arm: int | None = None, repeat: int | None = None
) -> Iterator[Row]:
    """A row for each text and number in JSON, labelled by the nearest provenance around it."""
    if isinstance(value, Mapping):
        around = str(value["provenance"]) if isinstance(value.get("provenance"), str) else provenance
        for name, inner in value.items():
            label = "given" if name in GIVEN else "computed" if name in COMPUTED else around
            label = "assumed" if name == "price_per_device_hour" and part == "result" else label
            yield from _leaves(part, inner, label, f"{path}.{name}" if path else str(name), arm, repeat)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(part, inner, provenance, f"{path}[{place}]", arm, repeat)
    elif value is not None:
        yield _row(part, arm, repeat, name=path, provenance=provenance, **_value(value))


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"text": "true" if value else "false"}
    if isinstance(value, int):
        return {"value": float(value), "text": str(value) if abs(value) > EXACT else None}
    return {"value": value} if isinstance(value, float) else {"text": str(value)}


def _of_record(stored: StoredRecord) -> Iterator[Row]:
    """The events of a record, and its account of memory."""
    record, at = stored.record, (stored.arm, stored.repeat)
    label = str(record.get("provenance") or "measured")
    yield from _leaves("memory", record.get("memory") or {}, label, "", *at)
    for request in record.get("requests") or []:
        yield from _of_request(request, at, label)
    for step in record.get("steps") or []:
        for name, value in step.items():
            if name != "index":
                if name.endswith("_ns") and isinstance(value, int):
                    yield _row("step", *at, step=step["index"], name=name, time_ns=value, provenance=label)
                else:
                    for row in _leaves("step", value, label, name, *at):
                        yield (*row[:4], step["index"], *row[5:])


def _of_request(request: Mapping[str, Any], at: tuple[int, int], label: str) -> Iterator[Row]:
    name = request.get("id")
    for time_ns, tokens in request.get("emissions") or []:
        yield _row("emission", *at, request=name, name="emission", time_ns=time_ns, tokens=tokens, provenance=label)
    for out, back in request.get("preemptions") or []:
        for event, time_ns in (("out", out), ("back", back)):
            if time_ns is not None:
                yield _row("preemption", *at, request=name, name=event, time_ns=time_ns, provenance=label)
    for step, kind, tokens in request.get("steps") or []:
        yield _row("work", *at, request=name, step=step, name=kind, tokens=tokens, provenance=label)
    for field, value in request.items():
        if field in ("id", "emissions", "preemptions", "steps"):
            continue
        if field.endswith("_ns") and isinstance(value, int):
            yield _row("request", *at, request=name, name=field, time_ns=value, provenance=label)
        else:
            for row in _leaves("request", value, label, field, *at):
                yield (*row[:3], None if name is None else str(name), *row[4:])
