"""Any run as one self-contained HTML file or as JSON, and the words of verdicts."""

from experiments.report.factorial import reading_sentence
from experiments.report.run_report import comparison_html, factorial_html, report_html, report_json
from experiments.report.verdict import headline, verdict_sentence
from experiments.report.words import LANGUAGES

__all__ = [
    "LANGUAGES",
    "comparison_html",
    "factorial_html",
    "headline",
    "reading_sentence",
    "report_html",
    "report_json",
    "verdict_sentence",
]
