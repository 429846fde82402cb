"""A model whose two copies lie in a prefill and a decode process: what stands here for decoder and weights.

The sides share the cores that one process would have. The engine's other parts see sizes here and no tensors.
"""

from __future__ import annotations

import os
import select
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.cores import allowed_cpus, cpu_quota, physical_cores
from core_engine.disaggregation.area import area_bytes, make_memory
from core_engine.disaggregation.messages import Load, Open
from core_engine.disaggregation.side import NAMES, Side
from core_engine.environment import resolve_threads
from core_engine.model.spec import DecoderSpec
from core_engine.parallel.messages import Failed
from core_engine.parallel.processes import STANDING_STILL_S, error_of
from core_engine.parallel.progress import make_progress
from core_engine.parallel.shards import ShardedWeights
from ledger.counted import counted
from ledger.errors import CannotRunError

POLL_S = 0.05


class TwoSides:
    """In a decoder's place: the sizes of the model and the processes that hold it."""

    launches = False

    def __init__(
        self, spec: DecoderSpec, weights: ShardedWeights, sides: tuple[Side, Side], memory: int, progress: int
    ) -> None:
        """memory, progress: descriptors, which are this object's from now on."""
        weakref.finalize(self, _let_go, sides, (memory, progress))
        self.spec, self.weights, self.sides, self.memory = spec, weights, sides, memory
        self.formats: dict[str, Any] = {}
        self.user: object = None  # the engine that the sides' engines belong to

    def open(self, message: Open, user: object) -> None:
        """New engines on both sides, with an area of the size they need; who had them before can't go on."""
        self.user = None
        for side in self.sides:
            side.renew()
        _await(self.sides, lambda side: side.vacant)
        # Nobody maps it now: pages that were touched go back, and the next engine's are new.
        os.ftruncate(self.memory, 0)
        os.ftruncate(self.memory, area_bytes(message.units, message.unit_bytes))
        for side in self.sides:
            side.open(message)
        _await(self.sides, lambda side: side.ready)
        self.user = user

    def close(self) -> None:
        """End both processes; the model can't be used after."""
        for side in self.sides:
            side.close()
        os.ftruncate(self.memory, 0)  # its pages go back now, the descriptors with this object


def threads_of_sides(threads: int) -> tuple[tuple[int, int], list[tuple[int, ...]]]:
    """Threads of each side, and the CPUs it keeps to: apart where there is a core for every thread, else none.

    Together they have `threads`; of a single one they share the core. Of an odd number prefill gets one more: it
    computes, decode waits for memory.
    """
    of_decode = max(1, threads // 2)
    both = (max(1, threads - of_decode), of_decode)
    cores, quota = physical_cores(allowed_cpus()), cpu_quota()
    if threads < len(both):
        return both, [tuple(cores[:1])] * len(both)
    if sum(both) > len(cores) or (quota is not None and quota < sum(both)):
        return both, [(), ()]
    return both, [tuple(cores[: both[0]]), tuple(cores[both[0] : sum(both)])]


def side_settings(config: EngineConfig, threads: int) -> dict[str, Any]:
    """The settings of a side's own engine. Who gets in is decided before it."""
    return {**config.settings(), "disaggregation": "off", "threads": threads, "rate_limit_rps": 0.0}


def start_sides(
    config: EngineConfig,
    spec: DecoderSpec,
    device: torch.device,
    dtype: torch.dtype,
    report: Callable[[str], None],
    standing_still_s: float = STANDING_STILL_S,
) -> TwoSides:
    """Start both processes and have them load the model. CannotRunError for what is missing here."""
    if os.name != "posix":
        raise CannotRunError("disaggregation=on: it needs a POSIX system, as Linux or macOS; use off")
    if device.type != "cpu":
        raise CannotRunError(
            "disaggregation=on: KV is handed over in shared memory of the host, which CUDA blocks are not in; use"
            " device=cpu"
        )
    threads, cpus = threads_of_sides(resolve_threads(config.threads))
    report(f"Starting a prefill process of {counted(threads[0], 'thread')} and a decode process of {threads[1]}")
    memory, progress = make_memory(), make_progress(len(NAMES))
    sides: list[Side] = []
    try:
        for number, count in enumerate(threads):
            load = Load({**side_settings(config, count), "device": device.type}, count)
            sides.append(Side(number, load, cpus[number], memory, progress, standing_still_s))
        _await(tuple(sides), lambda side: side.loaded is not None)
    except BaseException:
        _let_go(sides, (memory, progress))
        raise
    held = tuple(side.loaded.weights_bytes for side in sides if side.loaded is not None)
    return TwoSides(spec, ShardedWeights(device, dtype, held), (sides[0], sides[1]), memory, progress)


def _let_go(sides: Sequence[Side], descriptors: Sequence[int]) -> None:
    for side in sides:
        side.close()
    for descriptor in descriptors:
        os.close(descriptor)


def _complaint(failed: Failed, name: str) -> Exception:
    """What a side said before it ended itself, for whoever asked for it."""
    error = error_of(failed, f"the {name} process")
    if isinstance(error, MemoryError):
        return CannotRunError(f"disaggregation=on: memory for the {name} process is missing here ({error}); use less")
    return error


def _await(sides: tuple[Side, ...], done: Callable[[Side], bool]) -> None:
    """Wait until each side is; its own complaint, or CannotRunError when it is lost. What else comes is out of date."""
    waiting = list(sides)
    while waiting:
        select.select([side.fileno() for side in waiting], [], [], POLL_S)
        for side in list(waiting):
            for _ in side.receive():
                pass
            if done(side):
                waiting.remove(side)
            elif side.failed is not None:
                raise _complaint(side.failed, side.name)
            elif why := side.lost(busy=True):
                raise CannotRunError(f"disaggregation=on: {why} while starting")
