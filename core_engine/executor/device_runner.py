"""DeviceRunner: launches steps on a CUDA device and leaves them there; tokens come back when somebody waits for them.

Owns what is between a plan and its kernels: captured or not, which tokens are still to come from the step before, and
whether the device chooses the tokens itself. The decoder's arithmetic is in model/triton_decoder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from core_engine.executor.base import CaptureCost, Launched
from core_engine.executor.batch import build_batch
from core_engine.executor.device_batch import DeviceBatch, Ints, Tables, TileRule, device_batch
from core_engine.executor.device_choices import choose_on_device, on_device, uniforms_here
from core_engine.executor.sampler import choices_of, logit_places, nothing_sampled, sample_step
from core_engine.executor.step_graphs import Capture, GraphSizes, Outputs, StepGraphs, cuda_capture
from core_engine.kernels.options import AUTO_SPLITS, StepOptions
from core_engine.kernels.triton.attention import MOST_SPLITS, block_q_for
from core_engine.kv.cache import QuantizedCache
from core_engine.model.triton_decoder import TritonDecoder
from core_engine.plan import PENDING, Row, StepPlan, StepResult

MANY = 1 << 16  # new tokens of a row that is not short


@dataclass(frozen=True)
class DeviceStep:
    """A launched step. tokens, int32 [places of logits]: chosen on the device; None where the host has to choose."""

    rows: tuple[Row, ...]
    places: tuple[int, ...]
    logits: torch.Tensor
    hidden: torch.Tensor | None
    tokens: torch.Tensor | None
    on_host: torch.Tensor | None
    arrived: torch.cuda.Event | None

    def result(self) -> StepResult:
        """Wait for the step and its tokens, or choose them now."""
        if self.arrived is not None:
            self.arrived.synchronize()
        if not len(self.logits):
            return replace(nothing_sampled(self.rows), hidden=self.hidden)
        known = None
        if self.on_host is not None:
            known = dict(enumerate(self.on_host.tolist()))
            if min(known.values()) < 0:
                raise RuntimeError("no token can be chosen: a step's logits hold NaN or infinity")
        return replace(sample_step(self.rows, self.logits, self.places, known=known), hidden=self.hidden)


class DeviceRunner:
    """Runs steps of one cache. most_rows and most_drafts: of a step, as captured ones are made for them."""

    def __init__(
        self,
        decoder: TritonDecoder,
        cache: torch.Tensor | QuantizedCache,
        options: StepOptions,
        *,
        block_size: int,
        padding_block: int,
        most_drafts: int,
    ) -> None:
        self._decoder, self._cache, self._options = decoder, cache, options
        self._device = decoder.weights.device
        self._block_size, self._padding_block, self._most_drafts = block_size, padding_block, most_drafts
        self._tables, self._uniforms = Tables(), uniforms_here()
        self._rule = TileRule(
            short=1 + most_drafts,
            short_q=self._block_q(1 + most_drafts),
            long_q=self._block_q(MANY),
            block_size=block_size if isinstance(cache, QuantizedCache) else None,
        )
        self.runs_ahead = options.flash
        self._graphs: StepGraphs | None = None

    def _block_q(self, count: int) -> int:
        spec = self._decoder.spec
        group = spec.num_heads // spec.num_kv_heads
        quantized = isinstance(self._cache, QuantizedCache)
        return block_q_for(count, group, self._block_size, quantized, spec.head_dim)

    def capture(self, most_rows: int, capture: Capture | None = None) -> CaptureCost:
        """Capture the steps of up to so many rows of a new token each, with and without drafts; RuntimeError where that
        fails. capture: instead of CUDA's."""
        spec = self._decoder.spec
        longest = min(spec.max_position, self._padding_block * self._block_size)
        sizes = GraphSizes(
            rows=min(most_rows, self._padding_block),
            drafts=self._most_drafts,
            max_blocks=-(-longest // self._block_size),
            longest=longest,
            block_size=self._block_size,
            padding_block=self._padding_block,
            room=(spec.vocab_size, spec.hidden_size),
        )
        if capture is None:
            torch.cuda.empty_cache()
        self._graphs = StepGraphs(
            self._outputs,
            capture or cuda_capture(self._device),
            sizes,
            self._block_q,
            self._device,
            self._decoder.weights.dtype,
            (lambda: 0) if capture else (lambda: torch.cuda.memory_reserved(self._device)),
        )
        return self._graphs.cost

    def warm_up(self) -> None:
        """Compile attention for every number of splits that a step's length may ask for: once for a machine, and not in
        the middle of a run."""
        row = Row("dummy", 0, (0,), (self._padding_block,), is_prefill=False)
        batch = device_batch(
            [row], [0], Tables(), self._rule, block_size=self._block_size, padding_block=self._padding_block,
            device=self._device,
        )  # fmt: skip
        splits = 1
        while splits <= MOST_SPLITS and self._options.kv_splits == AUTO_SPLITS:
            self._decoder.step(batch, self._cache, replace(self._options, kv_splits=splits))
            splits *= 2

    def launch(self, plan: StepPlan, after: Launched | None = None, *, needs_hidden: bool) -> DeviceStep:
        """Begin a step. Tokens that are PENDING are those that `after` gives for the same requests."""
        wanted, places = logit_places(plan.rows)
        logits, hidden = self._run(plan.rows, wanted, after)
        tokens = on_host = arrived = None
        if wanted and on_device(plan.rows):
            choices = [
                choice
                for row, place in zip(plan.rows, places, strict=True)
                if row.sample
                for choice in choices_of(row, place)
            ]
            tokens = choose_on_device(logits, choices, self._uniforms)
            on_host = tokens.to("cpu", non_blocking=True)
        if self._device.type == "cuda":
            arrived = torch.cuda.Event()
            arrived.record()
        return DeviceStep(
            plan.rows, tuple(places), logits, hidden if needs_hidden else None, tokens, on_host, arrived
        )  # fmt: skip

    def _run(self, rows: Sequence[Row], wanted: Sequence[int], after: Launched | None) -> Outputs:
        def fill_in(batch: DeviceBatch, lies_at: Ints) -> None:
            self._fill_in(batch, rows, after, lies_at)

        if self._graphs is not None and (found := self._graphs.replay(rows, self._tables, fill_in)) is not None:
            return found
        if not self._options.flash:
            return self._stored_scores(rows, wanted)
        batch = device_batch(
            rows, wanted, self._tables, self._rule, block_size=self._block_size, padding_block=self._padding_block,
            device=self._device,
        )  # fmt: skip
        fill_in(batch, np.arange(len(batch.token_ids), dtype=np.int32))
        return self._outputs(batch)

    def _outputs(self, batch: DeviceBatch) -> Outputs:
        hidden = self._decoder.step(batch, self._cache, self._options)
        return self._decoder.logits(hidden.index_select(0, batch.wanted)), hidden

    def _stored_scores(self, rows: Sequence[Row], wanted: Sequence[int]) -> Outputs:
        """attention=naive: torch's operators, which store every score."""
        decoder, device = self._decoder, self._device
        batch = build_batch(
            rows, self._block_size, device, padding_block=self._padding_block, windows=decoder.spec.windows
        )
        hidden = decoder.forward(batch.token_ids, batch.positions, self._cache, batch.attention, self._options)
        return decoder.logits(hidden[torch.tensor(wanted, dtype=torch.int64, device=device)]), hidden

    def _fill_in(self, batch: DeviceBatch, rows: Sequence[Row], after: Launched | None, lies_at: Ints) -> None:
        """Put the tokens that the step before has chosen where they are still PENDING. lies_at: the place in the batch
        of each token of the rows."""
        pending = [at for at, row in enumerate(rows) if row.tokens[0] == PENDING]
        if not pending:
            return
        assert isinstance(after, DeviceStep) and after.tokens is not None
        sources = {row.request_id: place for row, place in zip(after.rows, after.places, strict=True)}
        firsts = np.cumsum([0, *(row.count for row in rows)])
        both = np.array([lies_at[firsts[pending]], [sources[rows[at].request_id] for at in pending]], dtype=np.int64)
        target, source = torch.from_numpy(both).to(self._device, non_blocking=True)
        # A row without any finite logits has no token (-1): its own step will say so, this one must not look it up.
        batch.token_ids.index_copy_(0, target, after.tokens.index_select(0, source).clamp_min(0))
