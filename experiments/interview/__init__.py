"""Interview practice: questions with computed keys, a bank of open and choice questions, mock interviews, review.

numeric/      kinds of numeric questions: fresh parameters by seed, keys from the ledger, mistakes told by name
bank.py       written questions (bank.toml, bank_en.toml, bank_zh.toml); rubric.py grades the open ones by key terms
by_model.py   the same judged by a model at an endpoint
items.py      all of them under one kind of reference; answering.py grades and explains an answer
mock.py, schedule.py, sheet.py, progress.py   timed interviews, Leitner's boxes, score sheet, the learner's file
"""

__all__ = ["answering", "by_model", "items", "mock", "progress", "sheet", "words"]
