"""A report as Markdown: tables, charts drawn with characters, and the command.

Every text is escaped, so that none becomes a link, a picture, a formula, a table's edge or HTML. Knows no kind of run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.report.charts import MIB
from experiments.report.document import Block, Cell, Change, Chart, Code, Document, Fold, Heading, Note, Section, Table
from experiments.report.words import MISSING, Words, number

# What Markdown, tables of it or mathematics in a notebook give a meaning.
SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
# What begins a list, a heading, a quotation or a rule at the start of a line.
OPENING = re.compile(r"^([-+](?=[\s-]|$)|=(?==*$)|#(?=[#\s]|$)|:(?=-)|\d+(?=[.)](?:\s|$)))")
WIDTH = 36
COLUMNS = 72
MOST_ROWS = 60
SIGNS = {"queue": "·", "prefill": "▓", "decode": "█", "held": "-"}


def markdown(document: Document) -> str:
    """The whole report."""
    below = (text for part in document.sections for text in section_lines(part, document.lang))
    return "\n\n".join([*top_lines(document), *below]) + "\n"


def top_lines(document: Document) -> list[str]:
    """Title, question, answer and what must be said beside it, a paragraph each."""
    words = Words(document.lang)
    marks = [document.mark[0]] if document.mark else []
    marks += [_label(document.label, words)] if document.label else []
    said = " ".join(rf"**\[{escape(text)}\]**" for text in marks)
    return [
        f"# {escape(document.title)}",
        escape(document.subtitle),
        f"*{escape(document.question)}*",
        f"{said} **{escape(document.answer)}**".strip() if document.answer else said,
        *(escape(line) for line in document.more),
        *(_note(note) for note in document.cautions),
    ]  # fmt: skip


def section_lines(part: Section, lang: str, level: int = 2) -> Iterator[str]:
    """The paragraphs of a section."""
    words = Words(lang)
    label = f" ({_label(part.label, words)})" if part.label else ""
    yield f"{'#' * min(level, 6)} {escape(part.title + label)}"
    if part.caption:
        yield f"*{escape(part.caption)}*"
    for block in part.blocks:
        yield from _block(block, lang, level)


def escape(text: Any) -> str:
    """The text as Markdown that shows exactly it, on one line."""
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = SPECIAL.sub(r"\\\1", line)
    line = OPENING.sub(lambda found: f"\\{found[0]}" if not found[0].isdigit() else f"{found[0]}\\", line)
    # Addresses and names that some readers turn into links by themselves.
    return line.replace("://", ":&#47;&#47;").replace("www.", "www&#46;").replace("@", "&#64;")


def fenced(text: str) -> str:
    """The text as it is, in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _label(label: str, words: Words) -> str:
    try:
        return words(label)
    except KeyError:  # a label of another version
        return label


def _block(block: Block, lang: str, level: int) -> Iterator[str]:
    words = Words(lang)
    match block:
        case Note():
            yield _note(block)
        case Heading():
            yield f"**{escape(block.text)}**"
        case Code():
            yield fenced(block.text)
        case Change():
            yield f"**{escape(block.text)}** {escape(block.verdict)}"
        case Table():
            yield _table(block, words)
        case Chart():
            yield from _chart(block, words)
        case Fold():
            yield f"**{escape(block.title)}**"
            for inner in block.blocks:
                yield from _block(inner, lang, level)
        case Section():
            yield from section_lines(block, lang, level + 1)


def _note(note: Note) -> str:
    text = escape(note.text)
    return f"**{text}**" if text and note.tone in ("verdict", "missing", "worse") else text


def _table(found: Table, words: Words) -> str:
    """A pipe table; one without a header gets an empty one, since Markdown knows no other."""
    if not found.rows and found.columns is None:
        return MISSING
    width = len(found.columns) if found.columns is not None else max(len(row) for row in found.rows)
    header = [escape(text) for text in found.columns or [""] * width]
    edges = ["---:" if place in found.numeric else "---" for place in range(width)]
    rows = [[_cell(cell, words) for cell in row] for row in found.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, edges, *rows])


def _cell(cell: Cell, words: Words) -> str:
    label = "" if cell.label is None else _label(cell.label, words)
    return escape(f"{cell.text} {label}".strip())


# -- charts with characters --------------------------------------------------------------------------------------------


def _chart(chart: Chart, words: Words) -> Iterator[str]:
    if not chart.rows:
        yield MISSING
        return
    lines = DRAWINGS[chart.kind](chart, words)
    cut = lines if len(lines) <= MOST_ROWS else [*lines[:MOST_ROWS], words("md_more", count=len(lines) - MOST_ROWS)]
    yield fenced("\n".join([_clean(chart.title), *cut]))


def _bars(chart: Chart, words: Words) -> list[str]:
    return _bar_lines([(row["name"], row["value"], row["text"]) for row in chart.rows])


def _latencies(chart: Chart, words: Words) -> list[str]:
    every = [(row, key) for row in chart.rows for key in ("p50", "p95", "p99")]
    return _bar_lines([(f"{row['name']} {key}", row[key], f"{number(row[key])} s") for row, key in every])


def _xy(chart: Chart, words: Words) -> list[str]:
    def text(row: Any) -> str:
        span = "" if row["low"] is None else f" [{number(row['low'])}, {number(row['high'])}]"
        return f"{number(row['y'])}{span}"

    return _bar_lines([(f"{row['name']} ({number(row['x'])})", row["y"], text(row)) for row in chart.rows])


def _spans(chart: Chart, words: Words) -> list[str]:
    """A dot with its interval around the middle, which is a line."""
    middle = chart.options.get("middle", 0.0)
    known = [row[key] for row in chart.rows for key in ("value", "low", "high") if row[key] is not None]
    reach = max((abs(value - middle) for value in known), default=0.0) or 1.0

    def place(value: float) -> int:
        return round((0.5 + (value - middle) / reach / 2) * (WIDTH - 1))

    names = _padded([row["name"] for row in chart.rows])
    lines = []
    for name, row in zip(names, chart.rows, strict=True):
        marks = [" "] * WIDTH
        if row["low"] is not None and row["high"] is not None:
            for at in range(place(row["low"]), place(row["high"]) + 1):
                marks[at] = "─"
        marks[place(middle)] = "│"
        if row["value"] is not None:
            marks[place(row["value"])] = "●"
        lines.append(f"{name}  {''.join(marks)}  {_clean(row['text'])}".rstrip())
    return lines


def _ledger(chart: Chart, words: Words) -> list[str]:
    rows = []
    for row in chart.rows:
        size = None if row["bytes"] is None else row["bytes"] / MIB
        rows.append((f"{row['name']} · {words(row['account'])}", size, f"{number(size, 4)} MiB"))
    return _bar_lines(rows)


def _timeline(chart: Chart, words: Words) -> list[str]:
    """A line a request; a column is a 72nd of the run."""
    end = max(row["end_s"] for row in chart.rows) or 1.0
    lines = [", ".join(f"{sign} {words(kind)}" for kind, sign in SIGNS.items()) + f"; 0 … {number(end)} s"]
    for place, arm in enumerate(chart.options["arms"]):
        lines.append(f"{_clean(arm['name'])} · {words('requests_line', count=arm['requests'])}")
        drawn: dict[int, list[str]] = {}
        for row in chart.rows:
            if row["arm"] == place:
                line = drawn.setdefault(row["row"], [" "] * COLUMNS)
                first, last = (min(COLUMNS - 1, int(row[key] / end * COLUMNS)) for key in ("start_s", "end_s"))
                line[first : last + 1] = [SIGNS.get(row["kind"], "?")] * (last + 1 - first)
        lines += ["".join(drawn[at]).rstrip() for at in sorted(drawn)]
    return lines


DRAWINGS: dict[str, Callable[[Chart, Words], list[str]]] = {
    "arms": _bars, "bars": _bars, "cross": _bars, "latencies": _latencies, "xy": _xy, "change": _spans,
    "intervals": _spans, "ledger": _ledger, "timeline": _timeline,
}  # fmt: skip


def _bar_lines(rows: Sequence[tuple[Any, float | None, Any]]) -> list[str]:
    most = max((value for _, value, _ in rows if value is not None), default=0.0) or 1.0
    names = _padded([name for name, _, _ in rows])
    lines = []
    for name, (_, value, text) in zip(names, rows, strict=True):
        bar = "" if value is None else "█" * max(0, round(WIDTH * value / most))
        lines.append(f"{name}  {bar:<{WIDTH}}  {_clean(text)}".rstrip())
    return lines


def _padded(names: Sequence[Any]) -> list[str]:
    """The names at one width, a Chinese character counted as two."""
    clean = [_clean(name) for name in names]
    widths = [sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in name) for name in clean]
    return [name + " " * (max(widths) - width) for name, width in zip(clean, widths, strict=True)]


def _clean(text: Any) -> str:
    return " ".join(str(text).split())
