"""Any run as a report, in HTML, Markdown, JSON, CSV, Parquet or as a notebook; and the words of verdicts."""

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
