"""The pages' CSV files: a spreadsheet takes no text of theirs for a formula, and numbers stay numbers."""

from __future__ import annotations

import pandas as pd

from app.components.section import csv_of


def test_texts_and_names_of_columns_begin_no_formula() -> None:
    frame = pd.DataFrame({"=arm": ["=1+1", "plain", None], "change": [-1.5, 2.0, 3.25]})
    assert csv_of(frame) == "'=arm,change\n'=1+1,-1.5\nplain,2.0\n,3.25\n"


def test_large_whole_numbers_stay_exact() -> None:
    assert csv_of(pd.DataFrame({"bytes": [2**62, 3]})) == f"bytes\n{2**62}\n3\n"
