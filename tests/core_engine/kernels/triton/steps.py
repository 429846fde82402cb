"""Steps of ragged rows for the attention and KV kernels: rows of a plan, the same as tables, and tiles over them."""

from __future__ import annotations

import torch

from core_engine.kernels.triton.rows import RowTable, Tiles
from core_engine.kv.cache import QuantizedCache
from core_engine.kv.format import KVFormat
from core_engine.model.rope import RopeSpec
from core_engine.model.spec import DecoderSpec
from core_engine.plan import GREEDY, Row

# (start, count): a prompt, a chunk that begins and ends inside blocks, and single tokens.
PLAIN_ROWS = [(0, 13), (64, 1), (45, 5), (90, 1)]


def quantized_rows(block_size: int) -> list[tuple[int, int]]:
    """A prompt that fills a block and opens another, a chunk and two that lie in one block, one of which fills it. For
    block sizes of 16, 32 and 64: a row that begins inside a block ends within it."""
    return [(0, block_size + 5), (64, 3), (127, 1), (130, 2)]


def plan_rows(spans: list[tuple[int, int]], block_size: int) -> list[Row]:
    """Rows over scattered blocks: that of place p of row r is p * rows + r. Slots run backwards."""
    rows = len(spans)
    made = []
    for number, (start, count) in enumerate(spans):
        room = -(-(start + count) // block_size)
        blocks = tuple(place * rows + number for place in range(room))
        tokens = tuple(range(count))
        made.append(Row(f"r{number}", start, tokens, blocks, count > 1, GREEDY, slot=rows - 1 - number))
    return made


def num_blocks(rows: list[Row]) -> int:
    """One more than the largest block in use: the padding block comes after it."""
    return 1 + max(block for row in rows for block in row.blocks)


def row_table(rows: list[Row], padding_block: int, padding_rows: int = 1) -> RowTable:
    """With a few rows that only pad."""
    width = max(len(row.blocks) for row in rows)
    tables = [[*row.blocks, *[padding_block] * (width - len(row.blocks))] for row in rows]
    tables += [[padding_block] * width] * padding_rows
    counts = [row.count for row in rows]
    firsts = [sum(counts[:place]) for place in range(len(rows))]
    columns = [firsts, counts, [row.start for row in rows], [row.slot for row in rows]]
    return RowTable(*(_int32(column + [0] * padding_rows) for column in columns), _int32(tables))


def tiles_of(rows: list[Row], block_q: int, block_end: int | None = None, padding_tiles: int = 1) -> Tiles:
    """Every row cut into at most block_q queries, and at each multiple of `block_end` positions; then empty tiles."""
    found = []
    for number, row in enumerate(rows):
        first = 0
        while first < row.count:
            most = block_q if block_end is None else min(block_q, block_end - (row.start + first) % block_end)
            found.append((number, first, min(most, row.count - first)))
            first += found[-1][2]
    found += [(len(rows), 0, 0)] * padding_tiles
    return Tiles(*(_int32(list(column)) for column in zip(*found, strict=True)), block_q)


def _int32(numbers: list) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def quantized_cache(form: KVFormat, rows: list[Row], block_size: int, kv_heads: int, head_dim: int) -> QuantizedCache:
    """Two layers of random past: bytes of random numbers, and random open blocks and sinks."""
    spec = DecoderSpec(
        hidden_size=8, intermediate_size=8, num_layers=2, num_heads=kv_heads, num_kv_heads=kv_heads,
        head_dim=head_dim, vocab_size=8, max_position=4096, rms_norm_eps=1e-6, rope=RopeSpec(),
        windows=(None, None), tie_embeddings=True, eos_token_ids=(),
    )  # fmt: skip
    blocks = num_blocks(rows) + 1
    cache = QuantizedCache(spec, form, blocks, block_size, len(rows) + 1, torch.device("cpu"))
    past = torch.randn(2, 2, blocks, block_size, kv_heads, head_dim)
    for layer in range(2):
        cache.raw[layer] = cache.layout.quantize(past[layer, 0], past[layer, 1])
    cache.open.copy_(torch.randn(cache.open.shape))
    return cache


def every_form() -> list[KVFormat]:
    """int8, and int4 and int2 with each key axis and protection."""
    return [KVFormat("int8")] + [
        KVFormat(name, axis, protect)
        for name in ("int4", "int2")
        for axis in ("channel", "token")
        for protect in ("none", "sinks", "outliers")
    ]
