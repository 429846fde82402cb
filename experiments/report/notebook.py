"""A report as a Jupyter notebook (format 4.5): its text, and cells that make its tables and charts again from the data
in it with pandas and Altair alone. Written without the nbformat package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from experiments.report.document import LABELS, Block, Chart, Document, Fold, Section, Table, plain_data
from experiments.report.markdown import section_lines, top_lines
from experiments.report.words import Words

# Characters of data on a line of a cell, so that an editor can still show it.
LINE = 4_000
HIDDEN = {"jupyter": {"source_hidden": True}}


def notebook_json(document: Document) -> str:
    """The notebook's file."""
    words = Words(document.lang)
    made = [_text("\n\n".join(top_lines(document))), *_data(document, words)]
    tables, charts = 0, 0
    for part in document.sections:
        made.append(_text("\n\n".join(section_lines(part, document.lang))))
        for block in _drawn(part.blocks):
            if isinstance(block, Table):
                made.append(_code(f"table({tables})"))
                tables += 1
            else:
                made.append(_code(f"chart({charts})"))
                charts += 1
    cells = [{"cell_type": cell.pop("cell_type"), "id": f"cell-{place:03d}", **cell} for place, cell in enumerate(made)]
    book = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, ensure_ascii=False, indent=1) + "\n"


def _drawn(blocks: tuple[Block, ...]) -> Iterator[Table | Chart]:
    """The tables with a header and the charts, in the order of reading."""
    for block in blocks:
        if isinstance(block, Section | Fold):
            yield from _drawn(block.blocks)
        elif isinstance(block, Chart) or (isinstance(block, Table) and block.columns is not None):
            yield block


def _data(document: Document, words: Words) -> list[dict[str, Any]]:
    """What says how the notebook works, the data, and the functions that draw it."""
    found = [block for part in document.sections for block in _drawn(part.blocks)]
    data = {
        **document.data,
        "tables": [plain_data(block) for block in found if isinstance(block, Table)],
        "labels": {name: words(name) for name in LABELS},
        "charts": [plain_data(block) for block in found if isinstance(block, Chart)],
    }
    # ASCII JSON within a Python text: both read the same escapes, so no character of the data is read as code.
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    lines = "\n".join(f"    {json.dumps(text[at : at + LINE])}" for at in range(0, len(text), LINE))
    helpers = files("experiments.report").joinpath("notebook_cell.py.txt").read_text(encoding="utf-8")
    return [
        _text(words("nb_how")),
        _code(f"import json\n\nDATA = json.loads(\n{lines}\n)", HIDDEN),
        _code(helpers.rstrip("\n"), HIDDEN),
        _code("requests()"),
    ]


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(source)}


def _code(source: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": metadata or {}, "outputs": [],
            "source": _lines(source)}  # fmt: skip


def _lines(source: str) -> list[str]:
    return source.splitlines(keepends=True)
