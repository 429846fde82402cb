"""From a plan's rows to the flat int32 arrays that compiled code reads. Knows no tensors and no model."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from core_engine.plan import Row


@dataclass(frozen=True)
class FlatBatch:
    """All int32 ("i" of array, which makes a short one and tells its address in a fraction of numpy's time).

    tokens [num_tokens] and tables [blocks of all rows] lie row after row; the others are per row. starts: position of
    a row's first token; counts: its tokens; table_starts: where its blocks begin; slots: where its open one is kept.
    """

    tokens: array[int]
    tables: array[int]
    starts: array[int]
    counts: array[int]
    table_starts: array[int]
    slots: array[int]


def flat_batch(rows: Sequence[Row]) -> FlatBatch:
    """The arrays of a step's rows."""
    tokens, tables, table_starts = array("i"), array("i"), array("i")
    for row in rows:
        tokens.extend(row.tokens)
        table_starts.append(len(tables))
        tables.extend(row.blocks)
    starts = array("i", [row.start for row in rows])
    counts = array("i", [len(row.tokens) for row in rows])
    slots = array("i", [row.slot for row in rows])
    return FlatBatch(tokens, tables, starts, counts, table_starts, slots)
