"""Runs one step's rows through a decoder: torch's operators or compiled code. Owns what is kept between steps for that.

Chooses no token; the cache it is handed is the executor's. A GPU's runner is in device_runner.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.executor.base import CaptureCost, Launched
from core_engine.executor.batch import build_batch
from core_engine.kernels.options import StepOptions
from core_engine.kv.cache import QuantizedCache
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder
from core_engine.plan import Row, StepPlan


@dataclass(frozen=True)
class Computed:
    """logits float32 [wanted, vocab_size]; hidden [tokens of all rows, hidden_size], states after the final norm, where
    they were asked for. best [wanted]: the id of each largest logit, where compiled code computed them."""

    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    best: NDArray[np.int32] | None = None


class StepRunner(Protocol):
    """Computes steps against one cache."""

    def run(self, rows: Sequence[Row], wanted: Sequence[int], *, needs_hidden: bool) -> Computed:
        """Logits of the flat token places `wanted`; the KV of all rows is written."""
        ...


class Launcher(Protocol):
    """Computes steps on a device of its own: what a StepRunner is where the host need not wait."""

    runs_ahead: bool  # whether a step may be launched behind one whose tokens are still to come

    def launch(self, plan: StepPlan, after: Launched | None = None, *, needs_hidden: bool) -> Launched:
        """Begin a step, tokens and all. Those that are PENDING are the ones `after` gives for the same requests."""
        ...

    def warm_up(self) -> None:
        """Compile the kernels that only later steps would need."""
        ...

    def capture(self, most_rows: int) -> CaptureCost:
        """Capture what can be replayed, for steps of up to so many rows; raises what goes wrong."""
        ...


class TorchRunner:
    """torch's operators, on any device. With pad_to above 1 every step is filled up to a multiple of so many tokens."""

    def __init__(
        self,
        decoder: Decoder,
        cache: torch.Tensor | QuantizedCache,
        options: StepOptions,
        *,
        block_size: int,
        padding_block: int,
        pad_to: int,
    ) -> None:
        self._decoder, self._cache, self._options = decoder, cache, options
        self._block_size, self._padding_block, self._pad_to = block_size, padding_block, pad_to

    def run(self, rows: Sequence[Row], wanted: Sequence[int], *, needs_hidden: bool) -> Computed:
        """Logits of the flat token places `wanted`; the KV of all rows is written."""
        decoder, device = self._decoder, self._decoder.weights.device
        batch = build_batch(
            rows,
            self._block_size,
            device,
            padding_block=self._padding_block,
            windows=decoder.spec.windows,
            pad_to=self._pad_to,
        )
        hidden = decoder.forward(batch.token_ids, batch.positions, self._cache, batch.attention, self._options)
        logits = decoder.logits(hidden[torch.tensor(wanted, dtype=torch.int64, device=device)])
        return Computed(logits, hidden[: sum(row.count for row in rows)] if needs_hidden else None)


class CompiledRunner:
    """The compiled step of a CPU. most_drafts: those of a row."""

    def __init__(
        self,
        decoder: CompiledDecoder,
        cache: torch.Tensor | QuantizedCache,
        options: StepOptions,
        most_drafts: int,
    ) -> None:
        self._decoder, self._cache, self._options = decoder, cache, options
        self._most_drafts = most_drafts
        self._room, self._room_rows = torch.empty(0), 0
        decoder.release_workspace()  # or it stays as large as a former executor's options made it

    def run(self, rows: Sequence[Row], wanted: Sequence[int], *, needs_hidden: bool) -> Computed:
        """Logits of the flat token places `wanted`; the KV of all rows is written."""
        best = np.empty(len(wanted), dtype=np.int32)
        room = self._room_for(len(wanted), len(rows) * (1 + self._most_drafts))
        tokens = sum(row.count for row in rows)
        hidden = torch.empty(tokens, self._decoder.spec.hidden_size) if needs_hidden else None
        logits = self._decoder.step(rows, wanted, self._cache, self._options, best, room, hidden)
        return Computed(logits, hidden, best)

    def _room_for(self, wanted: int, most: int) -> torch.Tensor:
        """Where a step puts its logits [wanted, vocab_size]: the same memory at every step, so that the system need
        not give out its pages again. That of a scored text, more than the `most` that are sampled, is not kept."""
        if wanted > most:
            return torch.empty(wanted, self._decoder.spec.vocab_size)
        if wanted > self._room_rows:
            self._room = torch.empty(0)
            self._room, self._room_rows = torch.empty(wanted, self._decoder.spec.vocab_size), wanted
        return self._room if wanted == self._room_rows else self._room[:wanted]
