"""A comparison as one self-contained HTML file, and the words of its verdict."""

from experiments.report.comparison import comparison_html
from experiments.report.verdict import headline, verdict_sentence
from experiments.report.words import LANGUAGES

__all__ = ["LANGUAGES", "comparison_html", "headline", "verdict_sentence"]
