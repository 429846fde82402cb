"""A report as plain data: sections of notes, tables, charts and commands. Every kind of run is turned into it, and
every format is drawn from it.

Owns the shapes alone. Knows no kind of run and no format: a text in here is what a reader sees, not yet escaped for any
of them, and a figure stands beside its text exactly as the store has it, in the store's unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

# Where a figure can be from, in the order in which a report explains them.
LABELS = ("measured", "computed", "simulated", "estimated", "assumed", "given")


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what is shown, the store's own value where it is a figure, its label, its tone.

    label: where the figure is from, one of LABELS. tone: "better", "worse" or "none".
    """

    text: str
    value: Any = None
    label: str | None = None
    tone: str | None = None


@dataclass(frozen=True)
class Note:
    """A paragraph. tone: plain, muted, caption, verdict, worse (a warning) or missing (something that lacks)."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True)
class Heading:
    """A title within a section."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text that is taken as it is, such as a command."""

    text: str


@dataclass(frozen=True)
class Change:
    """The change that a curve saw, in large: "+107 %", and the verdict beside it."""

    text: str
    verdict: str
    tone: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; a plain text is a cell without a figure. numeric: the columns whose cells stand at the right."""

    columns: tuple[str, ...] | None
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chart:
    """What is drawn: `kind` is one of charts.DRAWINGS, `rows` the points as flat objects, `options` what the kind needs
    besides."""

    kind: str
    title: str
    rows: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Fold:
    """Blocks that are shown when they are asked for, where a format can hide any."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A part with a title. label: where all of its figures are from. layout: card, or grid and wide_grid, whose blocks
    are sections side by side."""

    title: str
    blocks: tuple[Block, ...]
    label: str | None = None
    caption: str | None = None
    layout: str = "card"


Block = Note | Heading | Code | Change | Table | Chart | Fold | Section


@dataclass(frozen=True)
class Findings:
    """What a kind of run says: the part of a report that its builder writes.

    question and answer: a line each; more: further lines of the answer. mark: (text, tone) of a badge beside it, tone
    good, bad or none. cautions: what is said in colour right under it. caveats: what a reader must know before they
    rely on it. defined: names of definitions.
    """

    title: str
    question: str
    answer: str
    sections: tuple[Section | None, ...] = ()
    more: tuple[str, ...] = ()
    cautions: tuple[Note, ...] = ()
    caveats: tuple[str, ...] = ()
    mark: tuple[str, str] | None = None
    defined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A whole report. cautions: what is said in colour right under the answer; definitions: by name of a figure; data:
    the raw run and the events drawn."""

    lang: str
    title: str
    subtitle: str
    question: str
    answer: str
    label: str | None
    mark: tuple[str, str] | None
    more: tuple[str, ...]
    cautions: tuple[Note, ...]
    caveats: tuple[str, ...]
    sections: tuple[Section, ...]
    definitions: Mapping[str, str]
    command: str | None
    data: Mapping[str, Any]


def cell(value: Any) -> Cell:
    """A cell as it is, or a text as one."""
    return value if isinstance(value, Cell) else Cell(str(value))


def table(columns: Sequence[str] | None, rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> Table:
    """A table of cells and texts."""
    made = tuple(tuple(cell(value) for value in row) for row in rows)
    return Table(None if columns is None else tuple(columns), made, tuple(numeric))


def section(
    title: str, label: str | None, *blocks: Block | None, caption: str | None = None, layout: str = "card"
) -> Section:
    """A section of the blocks that there are."""
    return Section(title, tuple(block for block in blocks if block is not None), label, caption, layout)


def chart(kind: str, title: str, rows: Sequence[Mapping[str, Any]], **options: Any) -> Chart:
    """A chart of flat rows."""
    return Chart(kind, title, tuple(rows), options)


def blocks_of(found: Document | Section | Fold) -> Iterator[Block]:
    """Every block in the order of reading, sections and folds before what is in them."""
    for block in found.sections if isinstance(found, Document) else found.blocks:
        yield block
        if isinstance(block, Section | Fold):
            yield from blocks_of(block)


def labels_of(document: Document) -> list[str]:
    """Which of LABELS the report uses, in their order; labels of others behind them as they come."""
    used: dict[str | None, None] = {document.label: None}
    for block in blocks_of(document):
        if isinstance(block, Section):
            used[block.label] = None
        elif isinstance(block, Table):
            used.update({one.label: None for row in block.rows for one in row})
    return [name for name in LABELS if name in used] + [name for name in used if name and name not in LABELS]


def plain_data(found: Any) -> Any:
    """A document or a part of it as JSON: each object with the name of its shape under `is`."""
    if is_dataclass(found) and not isinstance(found, type):
        made = {field.name: plain_data(getattr(found, field.name)) for field in fields(found)}
        return {"is": type(found).__name__.lower(), **made}
    if isinstance(found, Mapping):
        return {str(name): plain_data(value) for name, value in found.items()}
    if isinstance(found, tuple | list):
        return [plain_data(value) for value in found]
    return found
