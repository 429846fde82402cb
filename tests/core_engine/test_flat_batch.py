"""A plan's rows as flat arrays: every row found again from them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_engine.executor.flat_batch import flat_batch
from core_engine.plan import Row

IDS = st.integers(0, 2**31 - 1)
ROWS = st.lists(st.tuples(st.lists(IDS, min_size=1, max_size=40), st.lists(IDS, max_size=9), IDS), max_size=12)


@given(ROWS)
def test_every_row_is_found_again(parts: list[tuple[list[int], list[int], int]]) -> None:
    rows = [Row(str(i), start, tuple(tokens), tuple(blocks), False) for i, (tokens, blocks, start) in enumerate(parts)]
    flat = flat_batch(rows)
    first = 0
    for place, row in enumerate(rows):
        count, begin = flat.counts[place], flat.table_starts[place]
        assert tuple(flat.tokens[first : first + count]) == row.tokens
        assert tuple(flat.tables[begin : begin + len(row.blocks)]) == row.blocks
        assert flat.starts[place] == row.start
        first += count
    assert first == len(flat.tokens) and len(flat.tables) == sum(len(row.blocks) for row in rows)


def test_all_arrays_are_int32() -> None:
    flat = flat_batch([Row("a", 3, (5, 6), (1,), True), Row("b", 0, (7,), (2, 4), False)])
    arrays = (flat.tokens, flat.tables, flat.starts, flat.counts, flat.table_starts)
    assert all((numbers.typecode, numbers.itemsize) == ("i", 4) for numbers in arrays)
