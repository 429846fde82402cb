"""Any run as a report, in HTML, Markdown, JSON, CSV, Parquet or as a notebook; and the words of verdicts.

What makes a report is loaded when it is asked for: the pages want the words (`words`) long before any report.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.report.factorial import reading_sentence
    from experiments.report.formats import FORMATS, answer_of, format_of, report_bytes, report_html, report_json
    from experiments.report.verdict import headline, verdict_sentence
    from experiments.report.words import LANGUAGES

__all__ = [
    "FORMATS",
    "LANGUAGES",
    "answer_of",
    "charts",
    "comparison",
    "document",
    "factorial",
    "format_of",
    "headline",
    "jitter",
    "markdown",
    "other_terms",
    "page",
    "parts",
    "reading_sentence",
    "report_bytes",
    "report_html",
    "report_json",
    "reproduce",
    "verdict",
    "verdict_sentence",
    "words",
]

_IN = {
    "FORMATS": "formats",
    "LANGUAGES": "words",
    "answer_of": "formats",
    "format_of": "formats",
    "headline": "verdict",
    "reading_sentence": "factorial",
    "report_bytes": "formats",
    "report_html": "formats",
    "report_json": "formats",
    "verdict_sentence": "verdict",
}


def __getattr__(name: str) -> Any:
    """One of the names above, from the module that has it; AttributeError for others, as of any module."""
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IN[name]}"), name)
