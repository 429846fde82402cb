"""The frame of every report: one self-contained HTML page, its headings, tables, badges and embedded data.

No network, scripts or fonts of its own. Knows no kind of run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from experiments.report.html import Markup, join, tag
from experiments.report.words import MISSING, Words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
BADGES = {"measured": "● ", "computed": "= ", "simulated": "◌ ", "estimated": "≈ ", "assumed": "≈ "}
# A table keeps a readable width on a phone from this many columns on, and scrolls inside its box.
WIDE = 7


def html_page(title: str, sections: Sequence[Markup | None], data: Any, words: Words) -> str:
    """The whole page; `data` is embedded as JSON."""
    head = join(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", f"{title} · Trilemma"),
        tag("style", Markup(files("experiments.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", *sections), embedded(data))
    return "<!doctype html>\n" + tag("html", tag("head", head), body, lang="zh-CN" if words.lang == "zh" else "en")


def embedded(data: Any) -> Markup:
    """The raw data in a script element of a type no browser runs. "<" is escaped, so that it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", Markup(text), type="application/json", id="trilemma-data")


def badge(provenance: str, words: Words) -> Markup:
    """The label of where a figure is from."""
    if provenance not in BADGES:
        return tag("span", provenance, class_="badge")
    return tag("span", BADGES[provenance] + words(provenance), class_=f"badge {provenance}")


def heading(text: str, provenance: str | None, words: Words, caption: str | None = None) -> Markup:
    """A section's title with its label, and a caption below."""
    return join(
        tag("div", tag("h2", text), None if provenance is None else badge(provenance, words), class_="head"),
        None if caption is None else tag("p", caption, class_="caption"),
    )


def card(*parts: Markup | None) -> Markup:
    """A section in a box."""
    return tag("section", *parts, class_="card")


def pairs(values: Mapping[str, Any], words: Words) -> Markup:
    """A table of names and values."""
    if not values:
        return tag("p", words("none"), class_="muted")
    return table(None, [[name, plain(value)] for name, value in values.items()])


def plain(value: Any) -> str:
    """A value for a reader: text as it is, anything else as JSON, a dash for none."""
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(header: Sequence[str] | None, rows: Sequence[Sequence[str | Markup]], numeric: Sequence[int] = ()) -> Markup:
    """A table that scrolls inside its box; the cells of the columns in `numeric` are set to the right."""

    def cells(name: str, row: Sequence[str]) -> Markup:
        return tag("tr", *(tag(name, cell, class_="n" if i in numeric else None) for i, cell in enumerate(row)))

    head = None if header is None else tag("thead", cells("th", header))
    wide = "wide" if header is not None and len(header) >= WIDE else None
    body = tag("tbody", *(cells("td", row) for row in rows))
    return tag("div", tag("table", head, body, class_=wide), class_="scroll")
