"""Which operators a step consists of: how often each is launched and how long it takes.

A meter is open around single steps and keeps one lap a step. Compiled CPU steps are read by their own timers, torch's
operators by torch.profiler: kernels on a CUDA device, operators on a CPU. Knows no plan and no settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Protocol

import numpy as np
import torch

from core_engine.model.compiled import CompiledDecoder
from core_engine.operator_sources import COMPILED, KERNELS, OPERATORS

DISPATCH = "(dispatch)"  # what is no launch: torch operators that only call others, and BOOKKEEPING
_VIEWS = """
alias as_strided chunk contiguous detach detach_ empty empty_like empty_strided expand flatten item lift_fresh narrow
permute reshape resize_ resolve_conj resolve_neg result_type scalar_tensor select slice split split_with_sizes squeeze t
to transpose type_as unbind unflatten unsqueeze unsafe_split view view_as _local_scalar_dense _reshape_alias
_unsafe_view
"""
# torch operators that compute no element: they look at a tensor in another way, or get memory for one.
BOOKKEEPING = frozenset(f"aten::{name}" for name in _VIEWS.split())
# Operators of a compiled step by how often they come: the others once a layer. As `list_operators` of step.h has them.
ONCE_A_STEP = ("embed", "final_norm", "head", "best")
TWICE_A_LAYER = ("add",)
# What a host calls to put work on a CUDA device, as the profiler names it; a graph is one call for all of its kernels.
LAUNCH_CALLS = (
    "cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch", "cudaLaunchCooperativeKernel",
    "cudaMemcpyAsync", "cudaMemsetAsync",
)  # fmt: skip


@dataclass
class Lap:
    """One step. launches and seconds by operator; host_calls: how often the host handed work over, None: not known."""

    launches: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    host_calls: int | None = None

    def add(self, name: str, launches: int, seconds: float) -> None:
        """Count launches of an operator, and what they took."""
        self.launches[name] = self.launches.get(name, 0) + launches
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(frozen=True)
class OperatorTime:
    """An operator of a step: how often it is launched, and what all of its launches take together, s."""

    name: str
    launches: int
    seconds: float


@dataclass(frozen=True)
class StepProfile:
    """A step over its laps, the operator that takes longest first."""

    operators: tuple[OperatorTime, ...]
    host_calls: int | None

    @property
    def launches(self) -> int:
        """Of all operators."""
        return sum(one.launches for one in self.operators)

    @property
    def seconds(self) -> float:
        """Of all operators together."""
        return sum(one.seconds for one in self.operators)


class OperatorMeter(AbstractContextManager[Any], Protocol):
    """Open around each step. counts: what it calls a launch. disturbs: whether steps are slower inside it, so that
    their whole time has to be taken outside."""

    counts: str
    disturbs: bool
    laps: list[Lap]


def operator_meter(decoder: Any, one_call: bool) -> OperatorMeter:
    """The meter of a decoder's steps. one_call: whether a compiled step is a single call (its `graph`)."""
    if isinstance(decoder, CompiledDecoder):
        return CompiledMeter(decoder, one_call)
    return TorchMeter(decoder.weights.device)


def quicker_half(laps: Sequence[Lap]) -> list[int]:
    """Places of the laps that figures are taken from: what a busy machine held up is left out, alike in every arm."""
    ordered = sorted(range(len(laps)), key=lambda place: sum(laps[place].seconds.values()))
    return ordered[: -(-len(laps) // 2)]


def step_profile(laps: Sequence[Lap]) -> StepProfile:
    """Means over the quicker half of the laps, of which there is at least one, so that operators add up to their sum;
    launches are medians over all."""
    kept = [laps[place] for place in quicker_half(laps)]
    operators = [
        OperatorTime(
            name,
            round(median(lap.launches.get(name, 0) for lap in laps)),
            fmean(lap.seconds.get(name, 0.0) for lap in kept),
        )
        for name in dict.fromkeys(name for lap in laps for name in lap.seconds)
    ]
    calls = [lap.host_calls for lap in laps if lap.host_calls is not None]
    there = [one for one in operators if one.launches or one.seconds > 0]
    ordered = sorted(there, key=lambda one: (-one.seconds, one.name))
    return StepProfile(tuple(ordered), round(median(calls)) if calls else None)


class CompiledMeter(AbstractContextManager[Any]):
    """The compiled step's timers: from when its threads begin an operator until all have ended it."""

    counts = COMPILED
    disturbs = False  # two readings of a clock for each operator

    def __init__(self, decoder: CompiledDecoder, one_call: bool) -> None:
        self.laps: list[Lap] = []
        self._decoder, self._one_call = decoder, one_call

    def __enter__(self) -> None:
        self._decoder.operator_ns = np.zeros(len(self._decoder.operator_names()), dtype=np.int64)

    def __exit__(self, *_: object) -> None:
        spent, self._decoder.operator_ns = self._decoder.operator_ns, None
        assert spent is not None
        named = dict(zip(self._decoder.operator_names(), spent.tolist(), strict=True))
        self.laps.append(compiled_lap(named, self._decoder.spec.num_layers, self._one_call))


def compiled_lap(nanoseconds: Mapping[str, int], layers: int, one_call: bool) -> Lap:
    """A lap out of a compiled step's timers; an operator whose timer stayed at zero is not in the step."""
    lap = Lap()
    for name, spent in nanoseconds.items():
        if spent:
            launches = 1 if name in ONCE_A_STEP else 2 * layers if name in TWICE_A_LAYER else layers
            lap.add(name, launches, spent / 1e9)
    lap.host_calls = 1 if one_call else sum(lap.launches.values())
    return lap


class TorchMeter(AbstractContextManager[Any]):
    """torch.profiler around a step: kernels where the device is a CUDA one, else torch's operators."""

    disturbs = True  # every operator is written down while it runs

    def __init__(self, device: torch.device) -> None:
        self.laps: list[Lap] = []
        self._device = device
        self.counts = KERNELS if device.type == "cuda" else OPERATORS
        self._profile: Any = None

    def __enter__(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)
        self._profile.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        profiled, self._profile = self._profile, None
        profiled.__exit__(*raised)
        if raised[0] is None:
            events = profiled.events() or ()
            self.laps.append(kernel_lap(events) if self.counts == KERNELS else operator_lap(events))


def kernel_lap(events: Iterable[Any]) -> Lap:
    """A lap out of torch.profiler's events on a CUDA device: every kernel, copy and fill that ran on it."""
    lap, calls = Lap(), 0
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            if not getattr(event, "is_user_annotation", False):  # a range that somebody marked, not work
                lap.add(event.name, 1, event.time_range.elapsed_us() / 1e6)
        elif event.name.startswith(LAUNCH_CALLS):
            calls += 1
    lap.host_calls = calls
    return lap


def operator_lap(events: Iterable[Any]) -> Lap:
    """A lap out of torch.profiler's events on a CPU: operators that compute and call no other that does, by what they
    took themselves."""
    lap = Lap()
    for event in events:
        is_launch = _computes(event) and not any(map(_computes, _below(event)))
        name, launches = (event.name, 1) if is_launch else (DISPATCH, 0)
        lap.add(name, launches, event.self_cpu_time_total / 1e6)
    lap.host_calls = sum(lap.launches.values())
    return lap


def _computes(event: Any) -> bool:
    return event.name not in BOOKKEEPING


def _below(event: Any) -> Iterator[Any]:
    """All operators that one calls, directly or not."""
    for child in event.cpu_children:
        yield child
        yield from _below(child)
