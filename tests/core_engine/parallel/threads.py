"""Ranks as threads of one process: the engine's own shards, stages and counters over a transport without a network.

Starting a process costs seconds of imports; what a rank computes is the same here. Real processes have tests of their
own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.executor.storage import block_bytes_of, make_cache, tensors_of_cache
from core_engine.kernels.choice import KernelChoice
from core_engine.kv.cache import QuantizedCache
from core_engine.model.loader import LoadedModel, open_model
from core_engine.model.weights import Wanted
from core_engine.parallel.comm import Communicator
from core_engine.parallel.messages import Loaded, Measure, Open, Opened, Step
from core_engine.parallel.pipeline import Stage
from core_engine.parallel.shards import ShardedModel, ShardedWeights, parts_of
from core_engine.parallel.tensor import ShardDecoder, load_shard, shard_spec
from ledger.model_spec import ModelSpec
from ledger.parallel import RankPart

PATIENCE_S = 60.0


class Wires:
    """What the threads of one model share."""

    def __init__(self, tp: int, pp: int) -> None:
        self.partials: list[list[torch.Tensor | None]] = [[None] * tp for _ in range(pp)]
        self.meet = [threading.Barrier(tp) for _ in range(pp)]
        self.pipes = [[queue.SimpleQueue[torch.Tensor]() for _ in range(tp)] for _ in range(pp)]


class ThreadTransport:
    """Sums in the order of ranks, as no library promises to."""

    def __init__(self, part: RankPart, wires: Wires) -> None:
        self._part, self._wires = part, wires

    def all_reduce(self, partial: torch.Tensor) -> None:
        stage, rank = self._part.stage, self._part.tp_rank
        partials, meet = self._wires.partials[stage], self._wires.meet[stage]
        partials[rank] = partial.clone()
        meet.wait(PATIENCE_S)
        total = torch.stack([one for one in partials if one is not None]).sum(dim=0)
        meet.wait(PATIENCE_S)
        partial.copy_(total)

    def send(self, hidden: torch.Tensor) -> None:
        self._wires.pipes[self._part.stage + 1][self._part.tp_rank].put(hidden)

    def receive(self, hidden: torch.Tensor) -> None:
        hidden.copy_(self._wires.pipes[self._part.stage][self._part.tp_rank].get(timeout=PATIENCE_S))

    def flush(self) -> None:
        pass


class ThreadRanks:
    """In RankProcesses' place."""

    def __init__(self, decoders: list[ShardDecoder], comms: list[Communicator]) -> None:
        self.decoders, self._comms = decoders, comms
        self._stages: list[Stage] = []
        self.pids = [0] * len(decoders)
        self.steps: list[Step] = []

    def ask(self, message: Any) -> list[Any]:
        if isinstance(message, Open):
            return self._open(message)
        if isinstance(message, Measure):
            return [0] * len(self.decoders)
        self.steps.append(message)
        return self._together(lambda rank: _answer(self._stages[rank], message))

    def close(self) -> None:
        self._stages = []

    def _open(self, message: Open) -> list[Opened]:
        self._stages, found = [], []
        for decoder, comm in zip(self.decoders, self._comms, strict=True):
            spec, size = decoder.spec, message.block_size
            cache = make_cache(spec, message.form, message.num_blocks, size, message.num_slots, torch.device("cpu"))
            padding = block_bytes_of(spec, message.form, size)
            places = {"block_size": size, "padding_block": message.num_blocks}
            self._stages.append(Stage(decoder, comm, cache, message.options, **places))
            tail = cache.tail_bytes() if isinstance(cache, QuantizedCache) else 0
            pool = tensors_of_cache(cache)[0].untyped_storage().nbytes() - padding
            found.append(Opened(pool, tail, padding))
        return found

    def _together(self, work: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None] * len(self.decoders)

        def run(rank: int) -> None:
            try:
                found[rank] = work(rank)
            except BaseException as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found


def _answer(stage: Stage, message: Step) -> Any:
    stepped, logits = stage.run(message)
    return stepped if logits is None else (stepped, logits.contiguous().numpy().tobytes())


def load_threads(path: Path, whole: LoadedModel, tp: int, pp: int, **settings: Any) -> LoadedModel:
    """A model directory over tp x pp threads, with `whole`'s tokenizer; weights float32."""
    config = EngineConfig.from_settings(
        {"model": str(path), "dtype": "fp32", "tensor_parallel": tp, "pipeline_parallel": pp, **settings}
    )
    opened = open_model(config)
    spec = ModelSpec.from_config(opened.config)
    parts, wires = parts_of(config, spec), Wires(tp, pp)
    wanted = Wanted(opened.scheme, torch.device("cpu"), torch.float32)
    comms = [Communicator(part, ThreadTransport(part, wires)) for part in parts]
    decoders = [
        ShardDecoder(
            shard_spec(opened.spec, comm.part),
            load_shard(opened.spec, comm.part, opened.source, wanted.held, lambda: None),
            comm,
        )
        for comm in comms
    ]
    held = tuple(decoder.weights.num_bytes() for decoder in decoders)
    model = ShardedModel(
        opened.spec,
        parts,
        ShardedWeights(torch.device("cpu"), torch.float32, held),
        ThreadRanks(decoders, comms),  # type: ignore[arg-type]
        [Loaded(size, 0, 1, ()) for size in held],
        "threads",
    )
    return replace(whole, decoder=model, kernels=KernelChoice("torch", "ranks"), activation_peaks={})
