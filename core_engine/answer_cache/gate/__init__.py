"""The lexical gate: what makes two similar questions different ones, read off their words.

Sentence vectors put "5 miles in kilometres" next to "8 miles in kilometres": one word in ten moves them little. The
gate looks at the words that change an answer: numbers and units, negation, directions and opposites, names, what kind
of thing is asked, and words that only one of the two has. English and Chinese. It can only refuse, never match,
and says what a similarity is worth in the language of the questions.
"""

from core_engine.answer_cache.gate.difference import closeness, difference
from core_engine.answer_cache.gate.question import Question, read_question

__all__ = ["Question", "closeness", "difference", "read_question"]
