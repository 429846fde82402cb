"""The pages' CSV files: a spreadsheet takes no text of theirs for a formula, and numbers stay numbers."""

from __future__ import annotations

import pandas as pd
from streamlit.testing.v1 import AppTest

from app.components.section import MOST_ROWS, csv_of


def test_texts_and_names_of_columns_begin_no_formula() -> None:
    frame = pd.DataFrame({"=arm": ["=1+1", "plain", None], "change": [-1.5, 2.0, 3.25]})
    assert csv_of(frame) == "'=arm,change\n'=1+1,-1.5\nplain,2.0\n,3.25\n"


def test_large_whole_numbers_stay_exact() -> None:
    assert csv_of(pd.DataFrame({"bytes": [2**62, 3]})) == f"bytes\n{2**62}\n3\n"


def test_of_a_long_table_the_first_rows_are_sent_and_the_rest_is_told() -> None:
    def script(rows: int) -> None:
        import pandas as pd

        from app.components.section import first_rows

        first_rows(pd.DataFrame({"n": range(rows)}))

    for rows, told in ((MOST_ROWS, []), (4 * MOST_ROWS, [f"{4 * MOST_ROWS:,} rows"])):
        app = AppTest.from_function(script, args=(rows,)).run()
        assert not app.exception
        assert len(app.dataframe[0].value) == MOST_ROWS
        assert [text in app.caption[0].value for text in told] == [True] * len(app.caption)
