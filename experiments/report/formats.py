"""The formats that a report can be had in: what each file is called, and what writes it from the report as plain data.

A new format is one renderer and one entry here. The same run gives the same bytes, whenever and wherever it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.build import Source, document, document_of, given_away, source_of
from experiments.report.document import Document, plain_data
from experiments.report.markdown import markdown
from experiments.report.notebook import notebook_json
from experiments.report.page import html_page
from experiments.report.rows import csv_bytes, parquet_bytes
from experiments.report.words import Words
from experiments.store import Run, Store
from ledger.errors import InputError

FORMAT, VERSION = "trilemma-report", 2


@dataclass(frozen=True)
class Format:
    """`write` makes the file's bytes; `mime` is what a browser calls it."""

    mime: str
    write: Callable[[Document, Source], bytes]


FORMATS: dict[str, Format] = {
    "html": Format("text/html", lambda report, source: html_page(report).encode()),
    "md": Format("text/markdown", lambda report, source: markdown(report).encode()),
    "json": Format("application/json", lambda report, source: _json_text(report).encode()),
    "csv": Format("text/csv", csv_bytes),
    "parquet": Format("application/vnd.apache.parquet", parquet_bytes),
    "ipynb": Format("application/x-ipynb+json", lambda report, source: notebook_json(report).encode()),
}


def format_of(name: str | None, out: Path | None) -> str:
    """The format that is named, else that of the file's ending, else HTML. InputError for one that there is not, or for
    a name and an ending that differ."""
    if name is not None and name not in FORMATS:
        raise InputError("format", name, ", ".join(FORMATS))
    ending = None if out is None else out.suffix.removeprefix(".")
    if ending is not None and ending not in FORMATS:
        raise InputError("--out", str(out), f"a file that ends in {', '.join(f'.{known}' for known in FORMATS)}")
    if name is not None and ending is not None and name != ending:
        raise InputError("--out", str(out), f"a file that ends in .{name}, as the format says")
    return name or ending or "html"


def report_bytes(run_id: str, store: Store, form: str, lang: str = "en") -> bytes:
    """The report of a run as a file of the format; InputError for an unknown run, format or language."""
    if form not in FORMATS:
        raise InputError("format", form, ", ".join(FORMATS))
    words, source = Words(lang), source_of(run_id, store)
    return FORMATS[form].write(document_of(source, words), source)


def report_html(run_id: str, store: Store, lang: str = "en") -> str:
    """The report of a run as one HTML page; InputError for an unknown run or language."""
    return report_bytes(run_id, store, "html", lang).decode()


def report_json(run_id: str, store: Store, lang: str = "en") -> dict[str, Any]:
    """The report as JSON: question, answer, definitions, command, every section as plain data, the run with its result
    and the events that are drawn."""
    words, source = Words(lang), source_of(run_id, store)
    return _json(document_of(source, words))


def answer_of(run: Run, lang: str = "en") -> str:
    """What a run says, in words."""
    return _answer(document(given_away(run), [], Words(lang)))


def _json(report: Document) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": VERSION, "lang": report.lang, "title": report.title, "question": report.question,
        "answer": report.answer, "verdict": _answer(report), "provenance": report.label,
        "cautions": [note.text for note in report.cautions], "caveats": list(report.caveats),
        "definitions": dict(report.definitions), "reproduce": report.command,
        "sections": plain_data(report.sections), **report.data,
    }  # fmt: skip


def _answer(report: Document) -> str:
    return " ".join(filter(None, [report.answer, *report.more]))


def _json_text(report: Document) -> str:
    return json.dumps(_json(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
