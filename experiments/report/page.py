"""A report as one self-contained HTML page.

No network, scripts or fonts of its own. All text goes through `html.tag`, which escapes it. Knows no kind of run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from experiments.report import charts
from experiments.report.document import Block, Cell, Change, Chart, Code, Document, Fold, Heading, Note, Section, Table
from experiments.report.html import Markup, join, tag
from experiments.report.words import Words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
BADGES = {"measured": "● ", "computed": "= ", "simulated": "◌ ", "estimated": "≈ ", "assumed": "≈ ", "given": "· "}
# A table keeps a readable width on a phone from this many columns on, and scrolls inside its box.
WIDE = 7
NOTES = {
    "plain": None, "muted": "muted", "caption": "caption", "verdict": "verdict", "worse": "tone-worse",
    "missing": "missing",
}  # fmt: skip
GRIDS = {"grid": "grid", "wide_grid": "grid two"}


def html_page(document: Document) -> str:
    """The whole page; the document's data is embedded as JSON."""
    words = Words(document.lang)
    head = join(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", f"{document.title} · Trilemma"),
        tag("style", Markup(files("experiments.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    below = tag("p", words("raw"), class_="muted")
    main = tag("main", *_top(document, words), *(_section(part, words) for part in document.sections), below)
    body = tag("body", main, _embedded(document.data))
    lang = "zh-CN" if document.lang == "zh" else "en"
    return "<!doctype html>\n" + tag("html", tag("head", head), body, lang=lang) + "\n"


def _embedded(data: Any) -> Markup:
    """The raw data in a script element of a type no browser runs. "<" is escaped, so that it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", Markup(text), type="application/json", id="trilemma-data")


def _badge(label: str, words: Words) -> Markup:
    """The label of where a figure is from."""
    if label not in BADGES:
        return tag("span", label, class_="badge")
    return tag("span", BADGES[label] + words(label), class_=f"badge {label}")


def _top(document: Document, words: Words) -> list[Markup]:
    """Title, which run it is, the question, and the answer with what must be said beside it."""
    mark = document.mark
    badges = (
        None if mark is None else tag("span", mark[0], class_=f"verdict-badge {mark[1]}"),
        None if document.label is None else _badge(document.label, words),
    )
    answer = tag(
        "section",
        tag("p", document.question, class_="question"),
        tag("div", *badges, class_="head") if any(badges) else None,
        tag("p", document.answer, class_="verdict"),
        *(tag("p", line, class_="more") for line in document.more),
        *(_note(note, words) for note in document.cautions),
        class_="card",
    )
    return [tag("h1", document.title), tag("p", document.subtitle, class_="muted"), answer]


def _section(part: Section, words: Words, level: str = "h2") -> Markup:
    """A titled box, or a title above boxes side by side."""
    title = tag("div", tag(level, part.title), None if part.label is None else _badge(part.label, words), class_="head")
    caption = None if part.caption is None else tag("p", part.caption, class_="caption")
    if part.layout in GRIDS:
        return tag("section", title, caption, tag("div", *_blocks(part.blocks, words), class_=GRIDS[part.layout]))
    return tag("section", title, caption, *_blocks(part.blocks, words), class_="card")


def _blocks(blocks: Sequence[Block], words: Words) -> list[Markup]:
    return [_block(block, words) for block in blocks]


def _block(block: Block, words: Words) -> Markup:
    match block:
        case Note():
            return _note(block, words)
        case Heading():
            return tag("h3", block.text)
        case Code():
            return tag("pre", block.text)
        case Change():
            verdict = tag("small", block.verdict, class_=f"tone-{block.tone}")
            return tag("p", block.text, verdict, class_="change")
        case Table():
            return _table(block, words)
        case Chart():
            return tag("figure", charts.draw(block, words))
        case Fold():
            return tag("details", tag("summary", block.title), *_blocks(block.blocks, words))
        case Section():
            return _section(block, words, "h3")


def _note(note: Note, words: Words) -> Markup:
    return tag("p", note.text, class_=NOTES[note.tone])


def _table(found: Table, words: Words) -> Markup:
    """A table that scrolls inside its box; a figure's cell carries the store's own value, exact."""

    def one(place: int, cell: Cell) -> Markup:
        exact = cell.value if isinstance(cell.value, int | float) and not isinstance(cell.value, bool) else None
        tone = f"tone-{cell.tone}" if cell.tone else None
        classes = " ".join(filter(None, ["n" if place in found.numeric else None, tone]))
        label = None if cell.label is None else _badge(cell.label, words)
        text = f"{cell.text} " if cell.text and label else cell.text
        return tag("td", text, label, class_=classes or None, data_value=None if exact is None else repr(exact))

    head = None
    if found.columns is not None:
        cells = (tag("th", text, scope="col", class_="n" if place in found.numeric else None)
                 for place, text in enumerate(found.columns))  # fmt: skip
        head = tag("thead", tag("tr", *cells))
    wide = "wide" if found.columns is not None and len(found.columns) >= WIDE else None
    body = tag("tbody", *(tag("tr", *(one(place, cell) for place, cell in enumerate(row))) for row in found.rows))
    return tag("div", tag("table", head, body, class_=wide), class_="scroll")
