"""A step of one rank: micro-batches through its stage, from tokens or the stage before, to logits or the stage after.

While a stage computes one micro-batch the next stage computes the one before it. Who cuts is every rank for itself, by
one rule over the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from core_engine.executor.batch import build_batch
from core_engine.kernels.options import StepOptions
from core_engine.kv.cache import QuantizedCache
from core_engine.parallel.comm import Communicator
from core_engine.parallel.messages import Step, Stepped
from core_engine.parallel.tensor import ShardDecoder
from core_engine.plan import Row


def micro_batches(rows: Sequence[Row], parts: int, block_size: int) -> list[list[Row]]:
    """The rows in their order, in at most `parts` pieces of about as many tokens; none is empty.

    A row of several tokens is cut where a block ends: its later tokens find the earlier ones in the cache, which the
    micro-batch before has written. One with drafts stays whole.
    """
    total = sum(row.count for row in rows)
    found: list[list[Row]] = [[]]
    done = 0
    for row in rows:
        for piece in _pieces(row, block_size):
            # The piece belongs to where its middle lies.
            place = min(parts - 1, (2 * done + piece.count) * parts // (2 * total))
            if place >= len(found) and found[-1]:
                found.append([])
            last = found[-1]
            if last and piece.start and last[-1].end == piece.start and last[-1].blocks is piece.blocks:
                last[-1] = replace(last[-1], tokens=last[-1].tokens + piece.tokens)
            else:
                last.append(piece)
            done += piece.count
    return found


def _pieces(row: Row, block_size: int) -> list[Row]:
    """The row block by block."""
    if row.count == 1 or row.num_drafts:
        return [row]
    first = row.start // block_size * block_size + block_size
    edges = [row.start, *range(first, row.end, block_size), row.end]
    return [
        replace(row, start=begin, tokens=row.tokens[begin - row.start : end - row.start])
        for begin, end in pairwise(edges)
    ]


class Stage:
    """One rank's decoder over one KV cache."""

    def __init__(
        self,
        decoder: ShardDecoder,
        comm: Communicator,
        cache: torch.Tensor | QuantizedCache,
        options: StepOptions,
        *,
        block_size: int,
        padding_block: int,
    ) -> None:
        self._decoder, self._comm, self._cache, self._options = decoder, comm, cache, options
        self._block_size, self._padding_block = block_size, padding_block

    @torch.inference_mode()
    def run(self, step: Step) -> tuple[Stepped, torch.Tensor | None]:
        """Write the KV of all rows; on the last stage also the rank's columns of the wanted logits, on the CPU."""
        comm, begin_ns = self._comm, time.monotonic_ns()
        comm.restart()
        parts = micro_batches(step.rows, step.micro_batches, self._block_size)
        found, first = [], 0
        for rows in parts:
            tokens = sum(row.count for row in rows)
            wanted = [place - first for place in step.wanted if first <= place < first + tokens]
            found.append(self._part(rows, tokens, wanted))
            first += tokens
        logits = None
        if comm.part.is_last and step.wanted:
            pieces = [part for part in found if part is not None]
            logits = (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).cpu()
            comm.hand_logits(logits)
        comm.flush()
        stepped = Stepped(
            begin_ns,
            time.monotonic_ns(),
            comm.all_reduce_ns,
            comm.send_ns,
            comm.receive_ns,
            len(parts),
            comm.traffic,
            None if logits is None else (logits.shape[0], logits.shape[1]),
        )
        return stepped, logits

    def _part(self, rows: Sequence[Row], tokens: int, wanted: Sequence[int]) -> torch.Tensor | None:
        decoder, part, weights = self._decoder, self._comm.part, self._decoder.weights
        batch = build_batch(
            rows,
            self._block_size,
            weights.device,
            padding_block=self._padding_block,
            windows=decoder.spec.windows,
        )
        if part.is_first:
            hidden = decoder.begin(batch.token_ids)
        else:
            hidden = torch.empty(tokens, decoder.spec.hidden_size, dtype=weights.dtype, device=weights.device)
            self._comm.receive(hidden)
        hidden = decoder.through(hidden, batch.positions, self._cache, batch.attention, self._options)
        if not part.is_last:
            self._comm.send(hidden)
            return None
        if not wanted:
            return None
        return decoder.end(hidden[torch.tensor(wanted, dtype=torch.int64, device=hidden.device)])
