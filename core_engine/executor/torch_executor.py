"""TorchExecutor: runs plans with the torch decoder on a CPU or a CUDA device.

Owns the KV cache tensor. How tokens are chosen from logits: executor/sampler.py.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from core_engine.config import EngineConfig
from core_engine.disaggregation.sides import TwoSides
from core_engine.environment import dtype_name
from core_engine.executor.activation_meter import ActivationMeter
from core_engine.executor.base import CaptureCost, Launched
from core_engine.executor.largest_steps import Room
from core_engine.executor.runner import CompiledRunner, Launcher, StepRunner, TorchRunner
from core_engine.executor.sampler import logit_places, nothing_sampled, sample_step
from core_engine.executor.storage import block_bytes_of, blocks_in, make_cache, tensors_of_cache
from core_engine.kernels.choice import TRITON
from core_engine.kernels.options import StepOptions
from core_engine.kv.cache import QuantizedCache
from core_engine.kv.format import KVFormat
from core_engine.memory_readings import return_freed_memory
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder
from core_engine.model.loader import LoadedModel
from core_engine.parallel.shards import ShardedModel
from core_engine.plan import Row, StepPlan, StepResult
from ledger.errors import CannotRunError, InputError

MIB = 1024**2


class TorchExecutor:
    """One device, one KV cache of as many whole blocks as `kv_memory_bytes` holds.

    The cache is written once when made, so that its pages are resident and the process's memory is the ledger's. It
    holds one block more than the pool, the padding block, which no request owns (see kernels/reference.py). With
    `pad_to` above 1 every step is filled up to a multiple of so many tokens.

    kv_format: the decoder's own by default. Quantized formats keep full-precision blocks for `num_slots` running
    requests beside the pool, and have no padding tokens. most_drafts: those that a row may bring to be verified.
    InputError for a model that lies in ranks.
    """

    def __init__(
        self,
        decoder: Decoder | CompiledDecoder | ShardedModel | TwoSides,
        *,
        block_size: int,
        kv_memory_bytes: int,
        pad_to: int = 1,
        options: StepOptions = StepOptions(),
        kv_format: KVFormat | None = None,
        num_slots: int = 1,
        most_drafts: int = 0,
    ) -> None:
        if isinstance(decoder, ShardedModel):  # asked for steps alone, past make_executor
            raise InputError("tensor_parallel, pipeline_parallel", f"{decoder.tp}, {decoder.pp}", "1, 1 for this")
        if isinstance(decoder, TwoSides):
            raise InputError("disaggregation", "on", "off for this")
        spec = decoder.spec
        self.needs_hidden = False
        self.most_drafts = most_drafts
        self._decoder = decoder
        self._device = decoder.weights.device
        self.block_size = block_size
        self._options = options
        form = kv_format or KVFormat(dtype_name(decoder.weights.dtype))
        form.refuse_what_cannot_run(self._device, spec.head_dim)
        self._block_bytes = block_bytes_of(spec, form, block_size)
        self.num_blocks = blocks_in(kv_memory_bytes, self._block_bytes)
        self._cache = make_cache(spec, form, self.num_blocks, block_size, num_slots, self._device)
        self._activation_peak_bytes = 0
        self._runner: StepRunner | None = None
        self._launcher: Launcher | None = None
        self._make_runner(pad_to)
        self.captured: CaptureCost | str | None = None  # why not, or None: nobody asked
        self.runs_ahead = self._launcher is not None and self._launcher.runs_ahead

    def _make_runner(self, pad_to: int) -> None:
        decoder, cache, options = self._decoder, self._cache, self._options
        places = {"block_size": self.block_size, "padding_block": self.num_blocks}
        if isinstance(decoder, CompiledDecoder):
            self._runner = CompiledRunner(decoder, cache, options, self.most_drafts)
        elif decoder.launches:
            from core_engine.executor.device_runner import DeviceRunner  # imports triton
            from core_engine.model.triton_decoder import TritonDecoder

            assert isinstance(decoder, TritonDecoder)
            self._launcher = DeviceRunner(decoder, cache, options, most_drafts=self.most_drafts, **places)
        else:
            self._runner = TorchRunner(decoder, cache, options, pad_to=pad_to, **places)

    def cache_tensors(self) -> list[torch.Tensor]:
        """All memory of the cache, the pool first."""
        return tensors_of_cache(self._cache)

    def kv_pool_bytes(self) -> int:
        """Bytes of the pool's blocks really allocated, the padding block apart."""
        return self.cache_tensors()[0].untyped_storage().nbytes() - self.padding_bytes()

    def kv_tail_bytes(self) -> int:
        """Bytes of the running requests' full-precision blocks; they come on top of the pool."""
        return self._cache.tail_bytes() if isinstance(self._cache, QuantizedCache) else 0

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
        if self._runner is None:
            return self.launch(plan).result()
        wanted, places = logit_places(plan.rows)
        began_s = time.perf_counter()
        done = self._runner.run(plan.rows, wanted, needs_hidden=self.needs_hidden)
        model_s = time.perf_counter() - began_s if done.logits.is_cpu else None
        result = sample_step(plan.rows, done.logits, places, done.best) if wanted else nothing_sampled(plan.rows)
        return replace(result, model_s=model_s, hidden=done.hidden)

    @torch.inference_mode()
    def launch(self, plan: StepPlan, after: Launched | None = None) -> Launched:
        """Begin a step on the device. Tokens that are PENDING are those that `after` gives for the same requests."""
        assert self._launcher is not None
        return self._launcher.launch(plan, after, needs_hidden=self.needs_hidden)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compile what no step has needed yet, where kernels are compiled as they are first used."""
        if self._launcher is not None and self._device.type == "cuda":
            self._launcher.warm_up()

    @torch.inference_mode()
    def capture(self, most_rows: int) -> CaptureCost | str:
        """Capture the steps of single new tokens of up to so many rows; why not, where that can't be."""
        if self._launcher is None or self._device.type != "cuda":
            return "only what runs on a CUDA device can be captured"
        if not (self._options.one_call and self._options.flash):
            return "graph=off" if self._options.flash else "attention=naive runs torch's operators"
        try:
            return self._launcher.capture(most_rows)
        except Exception as error:  # out of memory, what can't be captured, a kernel that can't be launched: all eager
            return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"

    def measure_activations(self, max_num_seqs: int, max_num_batched_tokens: int) -> int:
        """Run the largest prefill step and the widest decode step on dummy rows and keep the peak, bytes.

        Must be called before any request: it writes to the cache, and clears it again.
        """
        there = [*self.cache_tensors(), *self._decoder.weights.tensors()]
        with ActivationMeter(there) as meter:  # one for both steps: the compiled step's workspace stays after the first
            for rows in self.largest_steps(max_num_seqs, max_num_batched_tokens):
                self.execute(StepPlan(index=0, rows=rows, reserved=()))
        for tensor in self.cache_tensors():
            tensor.zero_()
        return_freed_memory()  # or the C library keeps up to 200 MB of what the dummy rows of 2,048 tokens took
        return meter.peak_bytes

    def largest_steps(self, max_num_seqs: int, max_num_batched_tokens: int) -> list[tuple[Row, ...]]:
        """Dummy rows of the largest prefill and of the widest decode that there can be."""
        room = Room(self.num_blocks, self.block_size, self._decoder.spec.max_position)
        return room.largest_steps(
            max_num_seqs,
            max_num_batched_tokens,
            self.most_drafts,
            flash=self._options.flash,
            quantized=isinstance(self._cache, QuantizedCache),
        )


def most_drafts(config: EngineConfig) -> int:
    """Drafts that a row of a step may bring."""
    return 0 if config.speculation == "off" else config.num_draft_tokens


def make_torch_executor(config: EngineConfig, loaded: LoadedModel) -> TorchExecutor:
    """The executor of a configuration, its activation peak measured once for each set of sizes.

    CannotRunError when the KV cache can't be allocated, or the loaded model has no kernels for what the settings ask.
    """
    loaded.kernels.refuse_what_needs_compiled(config)
    form = KVFormat.from_config(config, loaded.weights.dtype)
    # Unchunked, a step is a whole prompt beside all running decodes; chunked, the budget bounds both together.
    beside = 0 if config.chunked_prefill == "on" else config.max_num_seqs
    try:
        executor = TorchExecutor(
            loaded.decoder,
            block_size=config.block_size,
            kv_memory_bytes=config.kv_memory_mib * MIB,
            options=StepOptions.from_config(config),
            kv_format=form,
            num_slots=config.max_num_seqs,
            most_drafts=most_drafts(config),
        )
        sizes = (config.max_num_seqs, config.max_num_batched_tokens + beside)
        key = (
            executor.num_blocks,
            config.block_size,
            form,
            *sizes,
            executor.most_drafts,
            StepOptions.from_config(config),
            torch.get_num_threads(),
        )
        known = loaded.activation_peaks.get(key)
        loaded.activation_peaks[key] = executor.measure_activations(*sizes) if known is None else known
        executor.set_activation_peak(loaded.activation_peaks[key])
        if loaded.kernels.kernels == TRITON:
            executor.warm_up()
            executor.captured = executor.capture(config.max_num_seqs)
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise CannotRunError(
            f"kv_memory_mib: {config.kv_memory_mib} MiB of KV cache can't be allocated here; use less"
        ) from None
    if config.graph == "on" and isinstance(executor.captured, str):
        raise CannotRunError(f"graph=on: steps can't be captured here: {executor.captured}; use graph=auto or off")
    return executor
