"""A model whose weights lie in ranks: what stands in the driver for decoder and weights, and how it is started.

Refuses what a model can't be split into. The engine's other parts see sizes here and no tensors.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.cores import allowed_cpus, cpu_quota, physical_cores
from core_engine.environment import resolve_threads
from core_engine.model.spec import DecoderSpec
from core_engine.parallel.messages import Load, Loaded
from core_engine.parallel.processes import RankProcesses
from ledger.counted import counted
from ledger.errors import CannotRunError, InputError
from ledger.model_spec import ModelSpec
from ledger.parallel import RankPart, rank_parts

REASON = "ranks run torch's operators: an all-reduce stands between those of a compiled step"


@dataclass(frozen=True)
class ShardedWeights:
    """What is known here of weights that lie in ranks."""

    device: torch.device
    dtype: torch.dtype
    bytes_by_rank: tuple[int, ...]

    def tensors(self) -> list[torch.Tensor]:
        """None lie in this process."""
        return []

    def num_bytes(self) -> int:
        """Bytes really held by all ranks together; what several hold counts as often."""
        return sum(self.bytes_by_rank)


class ShardedModel:
    """In a decoder's place: sizes of the whole model, and the processes that hold it."""

    launches = False

    def __init__(
        self,
        spec: DecoderSpec,
        parts: tuple[RankPart, ...],
        weights: ShardedWeights,
        ranks: RankProcesses,
        loaded: Sequence[Loaded],
        backend: str,
    ) -> None:
        self.spec, self.parts, self.weights, self.ranks, self.backend = spec, parts, weights, ranks, backend
        self.loaded = tuple(loaded)
        self.formats: dict[str, Any] = {}  # nothing is quantized
        self.peaks: dict[tuple[Any, ...], tuple[int, ...]] = {}  # the ranks' activations, by the sizes of an engine

    @property
    def tp(self) -> int:
        """Ranks of a stage."""
        return self.parts[0].tp

    @property
    def pp(self) -> int:
        """Stages."""
        return self.parts[0].pp

    def close(self) -> None:
        """End the ranks; the model can't be used after."""
        self.ranks.close()


def parts_of(config: EngineConfig, spec: ModelSpec) -> tuple[RankPart, ...]:
    """What each rank holds; InputError that names all that the model is too small for."""
    limits = {
        "tensor_parallel": (config.tensor_parallel, spec.num_heads, "query heads"),
        "pipeline_parallel": (config.pipeline_parallel, spec.num_layers, "layers"),
    }
    over = {name: found for name, found in limits.items() if found[0] > found[1]}
    if over:
        raise InputError(
            "settings" if len(over) > 1 else next(iter(over)),
            ", ".join(f"{name}={asked}" if len(over) > 1 else str(asked) for name, (asked, _, _) in over.items()),
            "; ".join(f"{name} of at most {most}, the model's {what}" for name, (_, most, what) in over.items()),
        )
    return rank_parts(spec, config.tensor_parallel, config.pipeline_parallel)


def cores_of_ranks(ranks: int, threads: int) -> tuple[int, list[tuple[int, ...]]]:
    """Threads of each rank, and the CPUs that each keeps to: apart where there is a core for every thread, else none.

    The ranks share what one process would have: `threads` in all, at least one each.
    """
    each = max(1, threads // ranks)
    cores, quota = physical_cores(allowed_cpus()), cpu_quota()
    if each * ranks > len(cores) or (quota is not None and quota < each * ranks):
        return each, [()] * ranks
    return each, [tuple(cores[rank * each : (rank + 1) * each]) for rank in range(ranks)]


def start_shards(
    config: EngineConfig,
    spec: DecoderSpec,
    shape: ModelSpec,
    device: torch.device,
    dtype: torch.dtype,
    report: Callable[[str], None],
) -> ShardedModel:
    """Start the ranks and have each read its part. InputError for what can't be split, CannotRunError for what is
    missing here."""
    parts = parts_of(config, shape)
    name = f"tensor_parallel={config.tensor_parallel}, pipeline_parallel={config.pipeline_parallel}"
    backend = _backend(device, len(parts), name)
    threads, cpus = cores_of_ranks(len(parts), resolve_threads(config.threads))
    report(f"Starting {len(parts)} ranks, {counted(threads, 'thread')} each")
    ranks = RankProcesses(len(parts), cpus, threads, name=name)
    meeting = Path(tempfile.mkdtemp(prefix="trilemma-ranks-"))
    forget = weakref.finalize(ranks, shutil.rmtree, meeting, ignore_errors=True)
    try:
        settings = {**config.settings(), "device": device.type}
        loaded = ranks.ask(Load(settings, str(meeting / "store"), backend, threads))
    except BaseException as error:
        ranks.close()
        if isinstance(error, MemoryError):
            raise CannotRunError(f"{name}: the ranks' weights don't fit in memory here ({error})") from None
        raise
    finally:
        if backend == "gloo":  # it has met for good; NCCL meets there again at the first collective of every group
            forget()
    weights = ShardedWeights(device, dtype, tuple(found.weights_bytes for found in loaded))
    return ShardedModel(spec, parts, weights, ranks, loaded, backend)


def _backend(device: torch.device, ranks: int, name: str) -> str:
    if not torch.distributed.is_available():
        raise CannotRunError(f"{name}: this build of torch has no torch.distributed; use 1 of both")
    if device.type == "cpu":
        return "gloo"
    if torch.cuda.device_count() < ranks:
        raise CannotRunError(f"{name}: {ranks} ranks need a GPU each, {torch.cuda.device_count()} are here")
    return "nccl"
