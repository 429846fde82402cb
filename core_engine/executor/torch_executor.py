"""TorchExecutor: runs plans with the torch decoder on a CPU or a CUDA device.

Owns the KV cache tensor. Sampling happens on its device, since the logits live there: executor/sampler.py.
"""

from __future__ import annotations

import torch

from core_engine.config import EngineConfig
from core_engine.executor.activation_meter import ActivationMeter
from core_engine.executor.batch import build_batch
from core_engine.executor.sampler import logit_places, nothing_sampled, sample_step
from core_engine.memory_readings import return_freed_memory
from core_engine.model.decoder import Decoder
from core_engine.model.loader import LoadedModel
from core_engine.plan import GREEDY, Row, StepPlan, StepResult
from ledger.errors import CannotRunError, InputError

MIB = 1024**2


class TorchExecutor:
    """One device, one KV cache of as many whole blocks as `kv_memory_bytes` holds.

    The cache is written once when made, so that its pages are resident and the process's memory is the ledger's. It
    holds one block more than the pool, the padding block, which no request owns (see kernels/reference.py). With
    `pad_to` above 1 every step is filled up to a multiple of so many tokens.
    """

    def __init__(self, decoder: Decoder, *, block_size: int, kv_memory_bytes: int, pad_to: int = 1) -> None:
        spec = decoder.spec
        self._decoder = decoder
        self._device = decoder.weights.embedding.device
        self._dtype = decoder.weights.embedding.dtype
        self.block_size = block_size
        self._pad_to = pad_to
        block_bytes = 2 * spec.num_layers * block_size * spec.num_kv_heads * spec.head_dim * self._dtype.itemsize
        self.num_blocks = kv_memory_bytes // block_bytes
        if self.num_blocks < 1:
            raise InputError(
                "kv_memory_mib",
                kv_memory_bytes // MIB,
                f"at least {-(-block_bytes // MIB)}: one block is {block_bytes:,} B",
            )
        self._block_bytes = block_bytes
        shape = (spec.num_layers, 2, self.num_blocks + 1, block_size, spec.num_kv_heads, spec.head_dim)
        self._cache = torch.empty(shape, dtype=self._dtype, device=self._device).zero_()
        self._activation_peak_bytes = 0

    def kv_pool_bytes(self) -> int:
        """Bytes of the pool's blocks really allocated, the padding block apart."""
        return self._cache.untyped_storage().nbytes() - self.padding_bytes()

    def padding_bytes(self) -> int:
        """Bytes of the padding block."""
        return self._block_bytes

    def activation_peak_bytes(self) -> int:
        """The peak that was set (0 before) and the padding block: what a step needs beside weights and pool."""
        return self._activation_peak_bytes + self.padding_bytes()

    def set_activation_peak(self, peak_bytes: int) -> None:
        """Tell what `measure_activations` saw, here or in an executor of the same sizes."""
        self._activation_peak_bytes = peak_bytes

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Compute all rows in one forward pass, then sample or score."""
        batch = build_batch(
            plan.rows,
            self.block_size,
            self._device,
            padding_block=self.num_blocks,
            windows=self._decoder.spec.windows,
            pad_to=self._pad_to,
        )
        hidden = self._decoder.forward(batch.token_ids, batch.positions, self._cache, batch.attention)
        wanted, places = logit_places(plan.rows)
        if not wanted:
            return nothing_sampled(plan.rows)
        logits = self._decoder.logits(hidden[torch.tensor(wanted, device=self._device)])
        return sample_step(plan.rows, logits, places)

    def measure_activations(self, max_num_seqs: int, max_num_batched_tokens: int) -> int:
        """Run the largest prefill step and the widest decode step on dummy rows and keep the peak, bytes.

        Must be called before any request: it writes to the cache, and clears it again.
        """
        peak = 0
        for rows in self._largest_steps(max_num_seqs, max_num_batched_tokens):
            with ActivationMeter() as meter:
                self.execute(StepPlan(index=0, rows=rows, reserved=()))
            peak = max(peak, meter.peak_bytes)
        self._cache.zero_()
        return_freed_memory()  # or the C library keeps up to 200 MB of what the dummy rows of 2,048 tokens took
        return peak

    def _largest_steps(self, max_num_seqs: int, max_num_batched_tokens: int) -> list[tuple[Row, ...]]:
        capacity = self.num_blocks * self.block_size
        length = min(max_num_batched_tokens, capacity, self._decoder.spec.max_position)
        prefill = Row("dummy", 0, (0,) * length, tuple(range(self.num_blocks)), is_prefill=True, sampling=GREEDY)
        seqs = min(max_num_seqs, self.num_blocks, max_num_batched_tokens)
        share = self.num_blocks // seqs
        context = min(share * self.block_size, self._decoder.spec.max_position)
        decode = tuple(
            Row(f"dummy{i}", context - 1, (0,), tuple(range(i * share, (i + 1) * share)), False, GREEDY)
            for i in range(seqs)
        )
        return [(prefill,), decode]


def make_torch_executor(config: EngineConfig, loaded: LoadedModel) -> TorchExecutor:
    """The executor of a configuration, its activation peak measured once for each set of sizes.

    CannotRunError when the KV cache can't be allocated.
    """
    # Unchunked, a step is a whole prompt beside all running decodes; chunked, the budget bounds both together.
    beside = 0 if config.chunked_prefill == "on" else config.max_num_seqs
    try:
        executor = TorchExecutor(
            loaded.decoder, block_size=config.block_size, kv_memory_bytes=config.kv_memory_mib * MIB
        )
        sizes = (config.max_num_seqs, config.max_num_batched_tokens + beside)
        key = (executor.num_blocks, config.block_size, *sizes)
        known = loaded.activation_peaks.get(key)
        loaded.activation_peaks[key] = executor.measure_activations(*sizes) if known is None else known
        executor.set_activation_peak(loaded.activation_peaks[key])
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise CannotRunError(
            f"kv_memory_mib: {config.kv_memory_mib} MiB of KV cache can't be allocated here; use less"
        ) from None
    return executor
