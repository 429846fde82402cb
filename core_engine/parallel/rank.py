"""The process of one rank: `python -P -m core_engine.parallel.rank`, started by parallel/processes.py alone.

Answers commands in their order until its driver lets go of it. Samples nothing and knows no requests.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from core_engine.parallel.guard import end_with, take_cores

BROKEN = 71  # exit code after a step that failed: other ranks may wait for this one for ever


class Rank:
    """The state of a rank: its part of the weights, and the cache of the engine that runs now."""

    def __init__(self, rank: int, ranks: int, cpus: tuple[int, ...], alive: Callable[[], None]) -> None:
        self._rank, self._ranks, self._cpus, self._alive = rank, ranks, cpus, alive
        self._stage: Any = None

    def load(self, message: Any) -> Any:
        """Meet the others and read the own part of the weights."""
        import torch

        from core_engine.config import EngineConfig
        from core_engine.environment import resolve_dtype
        from core_engine.memory_readings import process_rss_bytes, return_freed_memory
        from core_engine.model.loader import open_model
        from core_engine.model.weights import Wanted
        from core_engine.parallel.comm import Communicator, TorchTransport, join
        from core_engine.parallel.messages import Loaded
        from core_engine.parallel.tensor import ShardDecoder, load_shard, shard_spec
        from ledger.model_spec import ModelSpec
        from ledger.parallel import rank_parts

        take_cores(self._cpus)
        config = EngineConfig.from_settings(message.settings)
        torch.set_num_threads(message.threads)
        self._device = torch.device(f"cuda:{self._rank}" if config.device == "cuda" else "cpu")
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        join(message.store, message.backend, self._rank, self._ranks)
        opened = open_model(config)
        spec = ModelSpec.from_config(opened.config)
        part = rank_parts(spec, config.tensor_parallel, config.pipeline_parallel)[self._rank]
        self._comm = Communicator(part, TorchTransport(part), self._alive)
        runtime_bytes = process_rss_bytes()
        wanted = Wanted(opened.scheme, self._device, resolve_dtype(config.dtype, self._device))
        weights = load_shard(opened.spec, part, opened.source, wanted.held, self._alive)
        self._decoder = ShardDecoder(shard_spec(opened.spec, part), weights, self._comm)
        del opened
        return_freed_memory()
        cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        return Loaded(weights.num_bytes(), runtime_bytes, torch.get_num_threads(), cpus)

    def open(self, message: Any) -> Any:
        """Make a new KV cache; the one before is let go first."""
        from core_engine.executor.storage import block_bytes_of, make_cache, tensors_of_cache
        from core_engine.kv.cache import QuantizedCache
        from core_engine.parallel.messages import Opened
        from core_engine.parallel.pipeline import Stage

        self._stage = self._cache = None
        spec, size = self._decoder.spec, message.block_size
        self._cache = make_cache(spec, message.form, message.num_blocks, size, message.num_slots, self._device)
        self._stage = Stage(
            self._decoder,
            self._comm,
            self._cache,
            message.options,
            block_size=size,
            padding_block=message.num_blocks,
        )
        padding = block_bytes_of(spec, message.form, size)
        pool, *_ = tensors_of_cache(self._cache)
        tail = self._cache.tail_bytes() if isinstance(self._cache, QuantizedCache) else 0
        return Opened(pool.untyped_storage().nbytes() - padding, tail, padding)

    def measure(self, message: Any) -> int:
        """Bytes of tensors alive together at most in these steps."""
        from core_engine.executor.activation_meter import ActivationMeter
        from core_engine.executor.storage import tensors_of_cache
        from core_engine.memory_readings import return_freed_memory

        assert self._cache is not None, "a rank measures after it was opened"
        cache = tensors_of_cache(self._cache)
        with ActivationMeter([*cache, *self._decoder.weights.tensors()]) as meter:
            for step in message.steps:
                self._stage.run(step)
        for tensor in cache:
            tensor.zero_()
        return_freed_memory()
        return meter.peak_bytes

    def step(self, message: Any) -> tuple[Any, Any]:
        """Compute rows; the answer, and the logits where this rank has some."""
        stepped, logits = self._stage.run(message)
        return stepped, None if logits is None else logits.contiguous().numpy()


def serve(rank: Rank, control: Connection) -> int:
    """Answer until the driver closes its end; the exit code."""
    from core_engine.parallel.messages import Load, Measure, Open, Step

    answers = {Load: rank.load, Open: rank.open, Measure: rank.measure, Step: rank.step}
    while True:
        try:
            message = pickle.loads(control.recv_bytes())
        except EOFError:
            return 0
        logits = None
        try:
            answer = answers[type(message)](message)
            if isinstance(message, Step):
                answer, logits = answer
        except Exception as error:
            control.send(_failed(error))
            if isinstance(message, Open):  # nothing that others wait for: a smaller cache may fit
                continue
            return BROKEN
        control.send(answer)
        if logits is not None:
            control.send_bytes(memoryview(logits).cast("B"))


def _failed(error: Exception) -> Any:
    from core_engine.parallel.comm import CollectiveError
    from core_engine.parallel.messages import Failed
    from ledger.errors import InputError

    arguments = (error.field, error.value, error.accepted) if isinstance(error, InputError) else ()
    return Failed(
        type(error).__name__,
        next(iter(str(error).splitlines()), ""),
        arguments,
        traceback.format_exc(),
        isinstance(error, CollectiveError),
    )


def main() -> None:
    """Set up the guards, then serve."""
    parser = argparse.ArgumentParser(description="One rank of a parallel model.")
    for name in ("rank", "ranks", "control", "lifeline", "progress", "driver", "by-signal"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--cpus", default="")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what an interrupt ends
    end_with(options.driver, options.lifeline, by_signal=bool(options.by_signal))
    cpus = tuple(int(cpu) for cpu in options.cpus.split(",") if cpu)
    take_cores(cpus)
    from core_engine.parallel.progress import Progress

    progress = Progress(options.progress, options.ranks)
    rank = Rank(options.rank, options.ranks, cpus, lambda: progress.step(options.rank))
    control = Connection(options.control)
    try:
        code = serve(rank, control)
    except (BrokenPipeError, ConnectionResetError):  # the driver let go in the middle of an answer
        code = 0
    sys.stderr.flush()
    os._exit(code)  # libraries' own endings wait for ranks that may be gone


if __name__ == "__main__":
    main()
