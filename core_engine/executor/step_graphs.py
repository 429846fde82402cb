"""Steps of single new tokens captured once per batch size and replayed: CUDA Graphs, with the buffers they read.

Owns which steps fit a captured one, and how the rows of a smaller batch are filled up: a padding row has no tokens, its
place in the batch reads and writes the padding block alone. Knows no sampling and no plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core_engine.executor.base import CaptureCost
from core_engine.executor.device_batch import DeviceBatch, Ints, Tables, aligned, filled, flat_places, sent
from core_engine.kernels.triton.rows import RowTable, Tiles
from core_engine.plan import Row

# (logits, hidden) of a batch: float32 [wanted, vocab_size] and [tokens, hidden_size].
Outputs = tuple[torch.Tensor, torch.Tensor]
Step = Callable[[DeviceBatch], Outputs]
# Runs a step once and returns what it put out, with how to have it done again into the same memory.
Capture = Callable[[Callable[[], Outputs]], tuple[Outputs, Callable[[], None]]]

SMALL = (1, 2, 4)
EVERY = 8  # beyond, so that at most 7 rows are padding


@dataclass(frozen=True)
class GraphSizes:
    """rows: most rows of a step; drafts: most drafts of a row; max_blocks: longest table; longest: longest sequence.

    room: numbers of a token's logits and of its hidden state.
    """

    rows: int
    drafts: int
    max_blocks: int
    longest: int
    block_size: int
    padding_block: int
    room: tuple[int, int]

    def buckets(self) -> list[int]:
        """Numbers of rows that steps are filled up to."""
        return [*(size for size in SMALL if size < self.rows), *range(EVERY, self.rows, EVERY), self.rows]


class _Inputs:
    """All numbers of a step that change with it, in one tensor and so in one copy; each kind begins aligned."""

    def __init__(self, sizes: Mapping[str, int], device: torch.device) -> None:
        self._places, first = {}, 0
        for name, size in sizes.items():
            self._places[name] = slice(first, first + size)
            first += aligned(size)
        self._there = torch.zeros(first, dtype=torch.int32, device=device)

    def part(self, name: str) -> torch.Tensor:
        """Where a kind of numbers is on the device."""
        return self._there[self._places[name]]

    def send(self, arrays: Mapping[str, Ints]) -> None:
        """Put numbers in place of the last step's; what is shorter is filled up with zeros."""
        whole = np.zeros(len(self._there), dtype=np.int32)
        for name, array in arrays.items():
            first = self._places[name].start
            whole[first : first + array.size] = array.reshape(-1)
        self._there.copy_(torch.from_numpy(whole), non_blocking=True)


class _Graph:
    """One captured step of `rows` rows of `per_row` places each, written to the beginning of `room`."""

    def __init__(
        self,
        step: Step,
        capture: Capture,
        sizes: GraphSizes,
        rows: int,
        per_row: int,
        block_q: int,
        room: Outputs,
    ) -> None:
        self._sizes, self.rows, self.per_row, self._block_q = sizes, rows, per_row, block_q
        self._padding_slot, device = sizes.padding_block * sizes.block_size, room[0].device
        tokens, tiles = rows * per_row, -(-per_row // block_q)
        self._firsts = np.arange(tiles, dtype=np.int32) * block_q  # of a row's tiles
        by_token, by_row = ("token_ids", "positions", "slots"), ("count", "start", "kv_slots")
        kinds = {**dict.fromkeys(by_token, tokens), **dict.fromkeys(by_row, rows), "tiles": rows * tiles}
        self._inputs = _Inputs(kinds, device)
        self._inputs.part("slots").fill_(self._padding_slot)
        places = torch.arange(tokens, dtype=torch.int32, device=device)
        shape = (rows, aligned(sizes.max_blocks))
        tables = torch.full(shape, sizes.padding_block, dtype=torch.int32, device=device)
        numbers = torch.arange(rows, dtype=torch.int32, device=device).repeat_interleave(tiles)
        firsts = torch.from_numpy(self._firsts).to(device).repeat(rows)
        part = self._inputs.part
        self.batch = DeviceBatch(
            part("token_ids"), part("positions"), part("slots"), places,
            RowTable(places[::per_row].contiguous(), part("count"), part("start"), part("kv_slots"), tables),
            (Tiles(numbers, firsts, part("tiles"), block_q),), sizes.longest, per_row, sizes.block_size,
        )  # fmt: skip
        self._tables: list[Ints | None] = [None] * rows

        def into_room() -> Outputs:
            logits, hidden = step(self.batch)
            return room[0][:tokens].copy_(logits), room[1][:tokens].copy_(hidden)

        self.outputs, self.replay = capture(into_room)

    def places(self, rows: Sequence[Row]) -> Ints:
        """Where each token of the rows lies in the batch."""
        return np.array([at * self.per_row + i for at, row in enumerate(rows) for i in range(row.count)], np.int32)

    def fill(self, rows: Sequence[Row], places: Ints, tables: Tables) -> None:
        """Put a step's rows in place of the last one's."""
        own = [tables.of(row) for row in rows]
        flat = np.zeros((3, self.rows * self.per_row), dtype=np.int32)
        flat[2] = self._padding_slot
        flat[:, places] = flat_places(rows, own, self._sizes.block_size)
        count = np.array([row.count for row in rows], dtype=np.int32)
        self._inputs.send(
            {
                **dict(zip(("token_ids", "positions", "slots"), flat, strict=True)),
                "count": count,
                "start": np.array([row.start for row in rows], dtype=np.int32),
                "kv_slots": np.array([row.slot for row in rows], dtype=np.int32),
                "tiles": np.clip(count[:, None] - self._firsts, 0, self._block_q),
            }
        )
        new = [at for at, table in enumerate(own) if self._tables[at] is not table]
        if new:
            longest = max(len(own[at]) for at in new)
            changed = filled([own[at] for at in new], longest, self._sizes.padding_block)
            there = sent({"new": np.array(new, dtype=np.int32), "tables": changed}, self.batch.token_ids.device)
            self.batch.rows.tables[:, :longest].index_copy_(0, there["new"].long(), there["tables"])
            for at in new:
                self._tables[at] = own[at]


class StepGraphs:
    """Captured steps by (rows, places a row). Rows with drafts have as many places as any may have drafts, and one."""

    def __init__(
        self,
        step: Step,
        capture: Capture,
        sizes: GraphSizes,
        block_q: Callable[[int], int],
        device: torch.device,
        dtype: torch.dtype,
        allocated: Callable[[], int] = lambda: 0,
    ) -> None:
        """Captures all, the largest first, so that the smaller ones share its memory; what they put out goes to one
        place too. block_q: queries a tile for rows of so many places; dtype: of hidden states; allocated: device bytes
        taken at the moment."""
        self._device = device
        began_s, before = time.perf_counter(), allocated()
        most = sizes.rows * (1 + sizes.drafts)
        vocab_size, hidden_size = sizes.room
        room = torch.empty(most, vocab_size, device=device), torch.empty(most, hidden_size, dtype=dtype, device=device)
        self._graphs = {
            (rows, per_row): _Graph(step, capture, sizes, rows, per_row, block_q(per_row), room)
            for per_row in sorted({1, 1 + sizes.drafts}, reverse=True)
            for rows in reversed(sizes.buckets())
        }
        self.cost = CaptureCost(len(self._graphs), time.perf_counter() - began_s, allocated() - before)
        self._buckets, self._most = sizes.buckets(), 1 + sizes.drafts

    def fitting(self, rows: Sequence[Row]) -> _Graph | None:
        """The smallest captured step that holds the rows; None when there is none."""
        if len(rows) > self._buckets[-1] or not all(map(_only_newest, rows)):
            return None
        per_row = 1 if all(row.count == 1 for row in rows) else self._most
        if any(row.count > per_row for row in rows):
            return None
        return self._graphs[next(size for size in self._buckets if size >= len(rows)), per_row]

    def replay(
        self, rows: Sequence[Row], tables: Tables, pending: Callable[[DeviceBatch, Ints], None]
    ) -> Outputs | None:
        """Logits [tokens of the rows, vocab_size] and hidden states of a step; None when no captured one fits.

        They lie in memory that all graphs share, until the next replay. pending(batch, places) puts in ids that are not
        known yet, places being where each token of the rows lies.
        """
        graph = self.fitting(rows)
        if graph is None:
            return None
        places = graph.places(rows)
        graph.fill(rows, places, tables)
        pending(graph.batch, places)
        logits, hidden = graph.outputs
        if len(places) == places[-1] + 1:
            graph.replay()
            return logits[: len(places)], hidden[: len(places)]
        chosen = torch.from_numpy(places).to(self._device, non_blocking=True)  # before the step: nothing waits for it
        graph.replay()
        return logits.index_select(0, chosen), hidden.index_select(0, chosen)


def _only_newest(row: Row) -> bool:
    """Whether a row computes its newest token and drafts behind it, and all their logits are wanted."""
    return row.sampling is not None and row.count == 1 + row.num_drafts and not row.targets


def cuda_capture(device: torch.device) -> Capture:
    """CUDA Graphs that share one memory pool, and with it, the largest step's memory."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Callable[[], Outputs]) -> tuple[Outputs, Callable[[], None]]:
        beside = torch.cuda.Stream(device)
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):  # once outside: kernels are compiled and libraries make their workspaces
            step()
        torch.cuda.current_stream(device).wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs = step()
        return outputs, graph.replay

    return capture
