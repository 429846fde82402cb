"""ParallelExecutor: runs plans on the ranks of a model. The scheduler, sampling and text stay in this process.

The driver is no rank: it can always answer, and end the others. It samples, once, from logits put together of the
ranks' columns, so that a token can't differ between ranks and sampling needs no second implementation.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch

from core_engine.config import EngineConfig
from core_engine.executor.largest_steps import Room
from core_engine.executor.sampler import logit_places, nothing_sampled, sample_step
from core_engine.executor.storage import block_bytes_of, blocks_in
from core_engine.kernels.options import StepOptions
from core_engine.kv.format import KVFormat
from core_engine.model.loader import LoadedModel
from core_engine.parallel.counters import ParallelCounters
from core_engine.parallel.messages import Measure, Open, Opened, Step, Stepped, bare_rows
from core_engine.parallel.shards import ShardedModel
from core_engine.parallel.tensor import shard_spec
from core_engine.plan import Row, StepPlan, StepResult
from ledger.errors import CannotRunError
from ledger.model_spec import ModelSpec
from ledger.parallel import RankPart

MIB = 1024**2


class ParallelExecutor:
    """The ranks' caches hold the same blocks, each for its own layers and heads: as many as the fullest rank has room
    for in `kv_memory_mib`, which is the memory of one rank, as it is of one device elsewhere."""

    runs_ahead = False
    captured = None

    def __init__(self, config: EngineConfig, loaded: LoadedModel, most_drafts: int) -> None:
        model = loaded.decoder
        assert isinstance(model, ShardedModel)
        self.needs_hidden = False
        self._model, self._spec = model, loaded.spec
        self.most_drafts, self.block_size = most_drafts, config.block_size
        form = KVFormat.from_config(config, model.weights.dtype)
        form.refuse_what_cannot_run(model.weights.device, model.spec.head_dim)
        sizes = [block_bytes_of(shard_spec(model.spec, part), form, config.block_size) for part in model.parts]
        self.num_blocks = blocks_in(config.kv_memory_mib * MIB, max(sizes))
        self.form, self.options = form, StepOptions.from_config(config)
        self.micro_batches = config.micro_batches or model.pp
        opening = Open(form, self.num_blocks, config.block_size, config.max_num_seqs, self.options)
        try:
            self.opened: list[Opened] = model.ranks.ask(opening)
        except MemoryError as error:
            raise CannotRunError(
                f"kv_memory_mib: {config.kv_memory_mib} MiB of KV cache on each of {len(model.parts)} ranks can't be"
                f" allocated here ({error}); use less"
            ) from None
        self.activation_peaks: tuple[int, ...] = (0,) * len(model.parts)
        self.counters = ParallelCounters(self._spec, model.parts, model.weights.dtype.itemsize)

    @property
    def parts(self) -> tuple[RankPart, ...]:
        """What each rank holds."""
        return self._model.parts

    @property
    def model(self) -> ShardedModel:
        """The ranks."""
        return self._model

    @property
    def spec(self) -> ModelSpec:
        """The shape of the whole model."""
        return self._spec

    def kv_pool_bytes(self) -> int:
        """Bytes of the pools of all ranks."""
        return sum(opened.pool_bytes for opened in self.opened)

    def kv_tail_bytes(self) -> int:
        """Bytes of all ranks' open blocks."""
        return sum(opened.tail_bytes for opened in self.opened)

    def padding_bytes(self) -> int:
        """Bytes of all ranks' padding blocks."""
        return sum(opened.padding_bytes for opened in self.opened)

    def activation_peak_bytes(self) -> int:
        """The ranks' peaks and their padding blocks."""
        return sum(self.activation_peaks) + self.padding_bytes()

    def measure_activations(self, max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
        """Run the largest steps on dummy rows and keep the peak of each rank, bytes. Before any request."""
        room = Room(self.num_blocks, self.block_size, self._model.spec.max_position)
        largest = room.largest_steps(
            max_num_seqs,
            max_num_batched_tokens,
            self.most_drafts,
            flash=self.options.flash,
            quantized=self.form.is_quantized,
        )
        steps = tuple(self._step(rows, logit_places(rows)[0]) for rows in largest)
        return tuple(self._model.ranks.ask(Measure(steps)))

    def _step(self, rows: tuple[Row, ...], wanted: list[int]) -> Step:
        return Step(bare_rows(rows), tuple(wanted), self.micro_batches)

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute all rows on all ranks, then sample or score here; RankLost when one of them is gone."""
        wanted, places = logit_places(plan.rows)
        began_s = time.perf_counter()
        answers = self._model.ranks.ask(self._step(plan.rows, wanted))
        logits = self._together(answers, len(wanted)) if wanted else None
        model_s = time.perf_counter() - began_s
        stepped: list[Stepped] = [answer[0] if isinstance(answer, tuple) else answer for answer in answers]
        told = self.counters.add(stepped, plan.num_tokens, len(wanted))
        result = nothing_sampled(plan.rows) if logits is None else sample_step(plan.rows, logits, places)
        return replace(result, model_s=model_s, parallel=told)

    def _together(self, answers: list[object], rows: int) -> torch.Tensor:
        """float32 [rows, vocab_size] of the last stage's columns."""
        logits = torch.empty(rows, self._model.spec.vocab_size)
        for part, answer in zip(self._model.parts, answers, strict=True):
            if isinstance(answer, tuple):
                stepped, columns = answer
                shape = stepped.logits_shape
                logits.numpy()[:, part.vocabulary.start : part.vocabulary.stop] = np.frombuffer(
                    columns, dtype=np.float32
                ).reshape(shape)
        return logits


def make_parallel_executor(config: EngineConfig, loaded: LoadedModel, most_drafts: int) -> ParallelExecutor:
    """The executor of a configuration, its ranks' activation peaks measured once for each set of sizes."""
    executor = ParallelExecutor(config, loaded, most_drafts)
    beside = 0 if config.chunked_prefill == "on" else config.max_num_seqs
    sizes = (config.max_num_seqs, config.max_num_batched_tokens + beside)
    key = (executor.num_blocks, config.block_size, executor.form, *sizes, most_drafts, executor.options,
           executor.micro_batches)  # fmt: skip
    known = executor.model.peaks.get(key)
    executor.model.peaks[key] = executor.activation_peaks = known or executor.measure_activations(*sizes)
    executor.counters.clear()
    return executor
