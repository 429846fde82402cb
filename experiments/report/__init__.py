"""Comparisons and 2 x 2 experiments as one self-contained HTML file, and the words of their verdicts."""

from experiments.report.comparison import comparison_html
from experiments.report.factorial import factorial_html, reading_sentence
from experiments.report.verdict import headline, verdict_sentence
from experiments.report.words import LANGUAGES

__all__ = ["LANGUAGES", "comparison_html", "factorial_html", "headline", "reading_sentence", "verdict_sentence"]
