"""Steps of single new tokens captured once per batch size and replayed: CUDA Graphs, with the buffers they read.

Owns which steps fit a captured one, and how the rows of a smaller batch are filled up: a padding row has no tokens, its
place in the batch reads and writes the padding block alone. Knows no sampling and no plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core_engine.executor.base import CaptureCost
from core_engine.executor.device_batch import DeviceBatch, Ints, Tables, filled, flat_places, sent
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
    """rows: most rows of a step; drafts: most drafts of a row; max_blocks: longest table; longest: longest sequence."""

    rows: int
    drafts: int
    max_blocks: int
    longest: int
    block_size: int
    padding_block: int

    def buckets(self) -> list[int]:
        """Numbers of rows that steps are filled up to."""
        return [*(size for size in SMALL if size < self.rows), *range(EVERY, self.rows, EVERY), self.rows]


class _Graph:
    """One captured step of `rows` rows of `per_row` places each."""

    def __init__(
        self,
        step: Step,
        capture: Capture,
        sizes: GraphSizes,
        rows: int,
        per_row: int,
        block_q: int,
        device: torch.device,
    ) -> None:
        self._sizes, self.rows, self.per_row = sizes, rows, per_row
        self._padding_slot = sizes.padding_block * sizes.block_size
        tokens = rows * per_row

        def ints(*shape: int, value: int = 0) -> torch.Tensor:
            return torch.full(shape, value, dtype=torch.int32, device=device)

        self._ints = ints(3 * (tokens + rows))  # all that changes with every step, sent in one copy
        token_ids, positions, slots = self._ints[: 3 * tokens].view(3, tokens)
        count, start, kv_slots = self._ints[3 * tokens :].view(3, rows)
        places = torch.arange(tokens, dtype=torch.int32, device=device)
        tables = ints(rows, sizes.max_blocks, value=sizes.padding_block)
        numbers = torch.arange(rows, dtype=torch.int32, device=device)
        slots.fill_(self._padding_slot)
        self.batch = DeviceBatch(
            token_ids, positions, slots, places,
            RowTable(places[::per_row].contiguous(), count, start, kv_slots, tables),
            (Tiles(numbers, ints(rows), count, block_q),), sizes.longest, per_row, sizes.block_size,
        )  # fmt: skip
        self._tables: list[Ints | None] = [None] * rows
        self.outputs, self.replay = capture(lambda: step(self.batch))

    def places(self, rows: Sequence[Row]) -> Ints:
        """Where each token of the rows lies in the batch."""
        return np.array([at * self.per_row + i for at, row in enumerate(rows) for i in range(row.count)], np.int32)

    def fill(self, rows: Sequence[Row], tables: Tables, device: torch.device) -> None:
        """Put a step's rows in place of the last one's."""
        own = [tables.of(row) for row in rows]
        whole = np.zeros(len(self._ints), dtype=np.int32)
        flat = whole[: 3 * self.rows * self.per_row].reshape(3, -1)
        flat[2] = self._padding_slot
        flat[:, self.places(rows)] = flat_places(rows, own, self._sizes.block_size)
        numbers = whole[flat.size :].reshape(3, -1)
        numbers[:, : len(rows)] = [[row.count for row in rows], [row.start for row in rows], [row.slot for row in rows]]
        self._ints.copy_(torch.from_numpy(whole), non_blocking=True)
        new = [at for at, table in enumerate(own) if self._tables[at] is not table]
        if new:
            longest = max(len(own[at]) for at in new)
            changed = filled([own[at] for at in new], longest, self._sizes.padding_block)
            there = sent({"new": np.array(new, dtype=np.int32), "tables": changed}, device)
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
        allocated: Callable[[], int] = lambda: 0,
    ) -> None:
        """Captures all, the largest first, so that the smaller ones share its memory. block_q: queries a tile for rows
        of so many places; allocated: device bytes taken at the moment."""
        self._device = device
        began_s, before = time.perf_counter(), allocated()
        self._graphs = {
            (rows, per_row): _Graph(step, capture, sizes, rows, per_row, block_q(per_row), device)
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

        They lie in the graph's own memory until the next replay. pending(batch, places) puts in ids that are not known
        yet, places being where each token of the rows lies.
        """
        graph = self.fitting(rows)
        if graph is None:
            return None
        graph.fill(rows, tables, self._device)
        places = graph.places(rows)
        pending(graph.batch, places)
        graph.replay()
        if len(places) == places[-1] + 1:
            return graph.outputs[0][: len(places)], graph.outputs[1][: len(places)]
        chosen = torch.from_numpy(places).to(self._device)
        return graph.outputs[0].index_select(0, chosen), graph.outputs[1].index_select(0, chosen)


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
