"""From a plan's rows to the int32 tensors that the kernels of a device read, sent there in one copy.

Knows rows and blocks; no model and no kernels. Tables of blocks are kept between steps: a sequence of 100,000 tokens
has thousands of them, and they change once in a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.kernels.triton.rows import RowTable, Tiles
from core_engine.plan import Row

Ints = NDArray[np.int32]
ALIGNED = 16  # numbers
PARTS_OF_TILES = ("rows", "firsts", "counts")


@dataclass(frozen=True)
class DeviceBatch:
    """One step: token_ids, positions and slots (block * block_size + offset) [tokens], what attention reads by rows and
    tiles, and the flat places whose logits are wanted [wanted]. longest: tokens of the longest sequence; most_new: of
    a row's in this step, at most."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    wanted: torch.Tensor
    rows: RowTable
    tiles: tuple[Tiles, ...]
    longest: int
    most_new: int
    block_size: int


@dataclass(frozen=True)
class TileRule:
    """How rows are cut into tiles: queries a tile for rows of few new tokens (at most `short`) and of many.

    block_size: of KV blocks that no tile may go past, None where KV is not quantized.
    """

    short: int
    short_q: int
    long_q: int
    block_size: int | None

    def cut(self, rows: Sequence[Row]) -> list[tuple[Ints, int]]:
        """For each kind of rows that there is: int32 [3, tiles] of row, first query and queries, and queries a tile."""
        kinds = [
            ([index for index, row in enumerate(rows) if row.count <= self.short], self.short_q),
            ([index for index, row in enumerate(rows) if row.count > self.short], self.long_q),
        ]
        return [
            (np.array([tile for index in kind for tile in self._tiles(index, rows[index], most)], np.int32).T, most)
            for kind, most in kinds
            if kind
        ]

    def _tiles(self, index: int, row: Row, most: int) -> Iterator[tuple[int, int, int]]:
        first = 0
        while first < row.count:
            end = min(row.count, first + most)
            if self.block_size is not None:
                end = min(end, first + self.block_size - (row.start + first) % self.block_size)
            yield index, first, end - first
            first = end


class Tables:
    """Block numbers of requests as arrays, kept as long as a request's tuple of blocks is the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], Ints]] = {}

    def of(self, row: Row) -> Ints:
        """int32 [blocks] of all blocks that the row's request has."""
        known = self._known.get(row.request_id)
        if known is None or known[0] is not row.blocks:
            known = row.blocks, np.array(row.blocks, dtype=np.int32)
            self._known[row.request_id] = known
        return known[1]

    def forget_others(self, rows: Sequence[Row]) -> None:
        """Let go of requests that are not among `rows`, now and then."""
        if len(self._known) > 4 * len(rows) + 64:
            ids = {row.request_id for row in rows}
            self._known = {request_id: known for request_id, known in self._known.items() if request_id in ids}


def flat_places(rows: Sequence[Row], tables: Sequence[Ints], block_size: int) -> tuple[Ints, Ints, Ints]:
    """Token ids, positions and slots [tokens] of the rows, one after another."""
    tokens = np.array([token for row in rows for token in row.tokens], dtype=np.int32)
    counts = np.array([row.count for row in rows])
    starts = np.array([row.start for row in rows])
    within = np.arange(len(tokens)) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = np.repeat(starts, counts) + within
    blocks = np.concatenate(
        [
            table[row.start // block_size : (row.end - 1) // block_size + 1][
                np.arange(row.start, row.end) // block_size - row.start // block_size
            ]
            for row, table in zip(rows, tables, strict=True)
        ]
    )
    slots = blocks.astype(np.int64) * block_size + positions % block_size
    return tokens, positions.astype(np.int32), slots.astype(np.int32)


def filled(tables: Sequence[Ints], width: int, padding_block: int) -> Ints:
    """int32 [rows, width] of tables, filled up with the padding block and cut at `width`."""
    table = np.full((len(tables), width), padding_block, dtype=np.int32)
    for line, blocks in zip(table, tables, strict=True):
        used = min(width, len(blocks))
        line[:used] = blocks[:used]
    return table


def aligned(size: int) -> int:
    """The next multiple of ALIGNED: strides and addresses that are none of 16 bytes have kernels compiled anew."""
    return -(-size // ALIGNED) * ALIGNED


def sent(arrays: Mapping[str, Ints], device: torch.device) -> dict[str, torch.Tensor]:
    """The arrays on the device, by name: views of one copy.

    Each begins at a multiple of 64 bytes, for a kernel is compiled anew for addresses that are no multiples of 16.
    """
    starts, size = {}, 0
    for name, array in arrays.items():
        starts[name] = size
        size += aligned(array.size)
    whole = np.zeros(size, dtype=np.int32)
    for name, array in arrays.items():
        whole[starts[name] : starts[name] + array.size] = array.reshape(-1)
    there = torch.from_numpy(whole).to(device, non_blocking=True)
    return {name: there[starts[name] : starts[name] + a.size].view(a.shape) for name, a in arrays.items()}


def device_batch(
    rows: Sequence[Row],
    wanted: Sequence[int],
    tables: Tables,
    rule: TileRule,
    *,
    block_size: int,
    padding_block: int,
    device: torch.device,
) -> DeviceBatch:
    """The step of `rows`, laid one after another."""
    own = [tables.of(row) for row in rows]
    tables.forget_others(rows)
    tokens, positions, slots = flat_places(rows, own, block_size)
    counts = np.array([row.count for row in rows], dtype=np.int32)
    longest = max(row.end for row in rows)
    cut = rule.cut(rows)
    there = sent(
        {
            "tokens": tokens,
            "positions": positions,
            "slots": slots,
            "wanted": np.array(wanted, dtype=np.int32),
            "first": np.cumsum(counts, dtype=np.int32) - counts,
            "count": counts,
            "start": np.array([row.start for row in rows], dtype=np.int32),
            "kv_slots": np.array([row.slot for row in rows], dtype=np.int32),
            "tables": filled(own, aligned(-(-longest // block_size)), padding_block),
            **{
                f"{part}{kind}": numbers
                for kind, (tiles, _) in enumerate(cut)
                for part, numbers in zip(PARTS_OF_TILES, tiles, strict=True)
            },
        },
        device,
    )
    return DeviceBatch(
        there["tokens"],
        there["positions"],
        there["slots"],
        there["wanted"],
        RowTable(there["first"], there["count"], there["start"], there["kv_slots"], there["tables"]),
        tuple(
            Tiles(there[f"rows{kind}"], there[f"firsts{kind}"], there[f"counts{kind}"], most)
            for kind, (_, most) in enumerate(cut)
        ),
        longest,
        int(counts.max()),
        block_size,
    )
