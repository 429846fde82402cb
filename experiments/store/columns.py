"""Lists of JSON objects as Parquet columns, and back to the very same JSON.

Owns the mapping between JSON values and Arrow types. A column holds one type: whole numbers, floating-point numbers,
texts, truth values, lists of those, tuples and objects. What fits none of them (a mixture of types, a whole number
beyond 64 bits) is kept as JSON text in its column, so nothing is ever rounded. Which is which stands in the file's
metadata under `trilemma`. Knows no store and no run.

Any reader of Parquet can open the files: a request's emissions are a list of [time in ns, tokens], a step's rows, which
mix texts and numbers, a list of structures with fields "0", "1" and so on.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# A column's mapping as JSON: a word, or an object with one key: list, tuple or object.
Codec = Any
METADATA = b"trilemma"
FORMAT = 1
SMALLEST, LARGEST = -(2**63), 2**63 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHAPE = "_keys"
MOST_SHAPES, MOST_FIELDS, MOST_PLACES, DEEPEST = 64, 128, 16, 6


class NotAsWritten(ValueError):
    """A file that is no Parquet of ours, or too large; the text says which."""


def to_parquet(rows: Sequence[Any]) -> bytes:
    """A Parquet file of JSON values, one a row. ValueError for NaN or infinity, as JSON refuses them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    array, codec = _encode(list(rows))
    if isinstance(codec, dict) and "object" in codec:
        table = pa.Table.from_arrays(array.flatten(), names=[field.name for field in array.type])
    else:
        table = pa.Table.from_arrays([array], names=["value"])
    note = json.dumps({"format": FORMAT, "rows": len(rows), "codec": codec}, separators=(",", ":"))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({METADATA: note.encode()}), sink, compression="zstd")
    return bytes(sink.getvalue())


def from_parquet(body: bytes, *, most_bytes: int = 2**34) -> list[Any]:
    """The rows of a file of `to_parquet`; NotAsWritten for anything else, or for more than `most_bytes` unpacked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(body))
        groups = (file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if sum(groups) > most_bytes:
            raise NotAsWritten(f"more than {most_bytes:,} bytes unpacked")
        table = file.read()
        note = json.loads((table.schema.metadata or {})[METADATA])
        codec = note["codec"]
        if note["format"] != FORMAT or note["rows"] != table.num_rows:
            raise NotAsWritten("its metadata do not fit it")
        columns = [_whole(column) for column in table.columns]
        with _no_garbage():
            if isinstance(codec, dict) and "object" in codec:
                return _objects(dict(zip(table.column_names, columns, strict=True)), codec["object"], table.num_rows)
            return _decode(columns[0], codec)
    except NotAsWritten:
        raise
    except (pa.ArrowException, OSError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise NotAsWritten(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing made here is garbage: looking for some in a million new lists takes four times as long as making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    # Depending on the version one chunk comes back as an array or as a chunked array of it.
    return combined.chunk(0) if hasattr(combined, "chunk") else combined


def _encode(values: list[Any], depth: int = 0) -> tuple[pa.Array, Codec]:
    """An array of these JSON values and how to read it back."""
    import pyarrow as pa

    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), pa.int8()), "null"
    if len(kinds) == 1 and depth < DEEPEST:
        (kind,) = kinds
        if kind is int and all(SMALLEST <= value <= LARGEST for value in values if value is not None):
            return pa.array(values, pa.int64()), "value"
        if kind is float:
            if not all(math.isfinite(value) for value in values if value is not None):
                raise ValueError("Out of range float values are not JSON compliant")
            return pa.array(values, pa.float64()), "value"
        if kind in (bool, str):
            return pa.array(values, pa.bool_() if kind is bool else pa.string()), "value"
        if kind is list:
            return _encode_lists(values, depth)
        if kind is dict and (shapes := _shapes(values)) is not None:
            return _encode_objects(values, shapes, depth)
    texts = [
        None if value is None else json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        for value in values
    ]
    return pa.array(texts, pa.string()), "json"


def _encode_lists(values: list[list[Any] | None], depth: int) -> tuple[pa.Array, Codec]:
    import pyarrow as pa

    absent = pa.array([value is None for value in values], pa.bool_())
    there = [value for value in values if value is not None]
    lengths = {len(value) for value in there}
    if len(lengths) == 1 and 1 < (width := lengths.pop()) <= MOST_PLACES and _mixed(there):
        rows = [value if value is not None else [None] * width for value in values]
        made = [_encode([row[place] for row in rows], depth + 1) for place in range(width)]
        names = [str(place) for place in range(width)]
        array = pa.StructArray.from_arrays([array for array, _ in made], names=names, mask=absent)
        return array, {"tuple": [codec for _, codec in made]}
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + (len(value) if value is not None else 0))
    child, codec = _encode([item for value in there for item in value], depth + 1)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), child, mask=absent), {"list": codec}


def _mixed(lists: list[list[Any]]) -> bool:
    """Whether the places of lists of one length hold different types: a tuple rather than a list."""
    return len({kind for value in lists for kind in map(type, value)} - {type(None)}) > 1


def _shapes(values: list[dict[str, Any] | None]) -> dict[tuple[str, ...], int] | None:
    """The different sequences of keys, numbered; None when they are too many or their names would not do as columns."""
    shapes: dict[tuple[str, ...], int] = {}
    for value in values:
        if value is not None:
            shapes.setdefault(tuple(value), len(shapes))
            if len(shapes) > MOST_SHAPES:
                return None
    names = {name for shape in shapes for name in shape}
    fine = all(isinstance(name, str) and NAME.fullmatch(name) and name != SHAPE for name in names)
    return shapes if fine and 0 < len(names) <= MOST_FIELDS else None


def _encode_objects(
    values: list[dict[str, Any] | None], shapes: dict[tuple[str, ...], int], depth: int
) -> tuple[pa.Array, Codec]:
    import pyarrow as pa

    rows = [value if value is not None else {} for value in values]
    names = list(dict.fromkeys(name for shape in shapes for name in shape))
    made = {name: _encode([row.get(name) for row in rows], depth + 1) for name in names}
    arrays = [array for array, _ in made.values()]
    if len(shapes) > 1:
        names.append(SHAPE)
        arrays.append(pa.array([None if v is None else shapes[tuple(v)] for v in values], pa.int8()))
    absent = pa.array([value is None for value in values], pa.bool_())
    array = pa.StructArray.from_arrays(arrays, names=names, mask=absent if None in values else None)
    return array, {"object": {"shapes": [list(s) for s in shapes], "of": {name: c for name, (_, c) in made.items()}}}


def _decode(array: pa.Array, codec: Codec) -> list[Any]:
    """The JSON values of an array."""
    if codec == "null":
        return [None] * len(array)
    if codec == "value":
        # Numbers without a gap go the short way: it is ten times as fast.
        if array.null_count == 0 and array.type in _numbers():
            plain: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
            return plain
        listed: list[Any] = array.to_pylist()
        return listed
    if codec == "json":
        return [None if text is None else json.loads(text) for text in array.to_pylist()]
    ((kind, inner),) = codec.items()
    if kind == "list":
        starts, items = array.offsets.to_numpy().tolist(), _decode(array.values, inner)
        found: list[Any] = [items[start:end] for start, end in pairwise(starts)]
    elif kind == "tuple":
        places = [_decode(array.field(place), one) for place, one in enumerate(inner)]
        found = [list(row) for row in zip(*places, strict=True)]
    else:
        fields = {array.type[i].name: array.field(i) for i in range(array.type.num_fields)}
        found = _objects(fields, inner, len(array))
    return _without_absent(found, array)


def _objects(fields: dict[str, pa.Array], inner: dict[str, Any], rows: int) -> list[Any]:
    shapes: list[list[str]] = inner["shapes"]
    columns = {name: _decode(fields[name], codec) for name, codec in inner["of"].items()}
    if len(shapes) == 1:
        (names,) = shapes
        return [dict(zip(names, row, strict=True)) for row in zip(*(columns[name] for name in names), strict=True)]
    which = fields[SHAPE].fill_null(0).to_numpy().tolist()
    return [{name: columns[name][i] for name in shapes[which[i]]} for i in range(rows)]


def _without_absent(found: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count == 0:
        return found
    return [
        value if there else None
        for value, there in zip(found, array.is_valid().to_numpy(zero_copy_only=False), strict=True)
    ]


def _numbers() -> tuple[pa.DataType, ...]:
    import pyarrow as pa

    return pa.int64(), pa.float64(), pa.bool_()
