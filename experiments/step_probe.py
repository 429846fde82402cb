"""Times single steps of an engine's executor: a prefill or a decode of chosen sizes, without a scheduler.

Owns the dummy rows and the repeats. What the steps should cost is the ledger's business.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from experiments.asked_to_stop import go_on
from experiments.calibrate import summary
from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec

Pairs = tuple[list[float], list[float]]
PRODUCTS = ("qkv", "output", "gate_up", "down")
REPEATS = 9
LONGEST_S = 10.0  # a step is repeated for no longer than this, but at least three times


@dataclass(frozen=True)
class ProbedStep:
    """`batch` sequences: all of their `seq_len` tokens new (prefill), or the last of them (decode)."""

    phase: str
    batch: int
    seq_len: int


@dataclass(frozen=True)
class Probe:
    """What was measured: the model's shape, what it ran in, and each step's {"median", "low", "high", "repeats"}, s."""

    spec: ModelSpec
    dtype: str
    device: str
    threads: int
    seconds: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class PairedProbe:
    """What two ways to compute a step took: for each step the (baseline, candidate) seconds, pair by pair.

    products: likewise of the linear layers alone; empty where an arm runs on torch's operators. weights_bytes: held by
    each arm.
    """

    seconds: tuple[Pairs, ...]
    kernels: str
    dtype: str
    threads: int
    products: tuple[Pairs, ...] = ()
    weights_bytes: tuple[int, int] = (0, 0)


def probe_steps(
    steps: Sequence[ProbedStep],
    settings: Mapping[str, Any] | None = None,
    repeats: int = REPEATS,
    on_step: Callable[[ProbedStep], None] = lambda _: None,
) -> Probe:
    """Median seconds of each step with the model, device, dtype and threads of `settings`; greedy sampling included.

    Every step runs once before it is timed. InputError for sizes below 1 or beyond the model's positions.
    """
    import torch

    from core_engine.environment import dtype_name

    positive("repeats", repeats, 1000)
    config, loaded = _loaded(settings)
    executor = _executor(steps, config, loaded)
    device = loaded.weights.device.type
    seconds = []
    for step in steps:
        on_step(step)
        plan = _plan(step, config.block_size)
        first_s = _timed(executor, plan, device)
        affordable = max(min(3, repeats), int(LONGEST_S / first_s))
        timed = []
        for _ in range(min(repeats, affordable)):
            go_on()
            timed.append(_timed(executor, plan, device))
        seconds.append(summary(timed))
    return Probe(loaded.spec, dtype_name(loaded.weights.dtype), device, torch.get_num_threads(), tuple(seconds))


def probe_pair(steps: Sequence[ProbedStep], arms: Sequence[Mapping[str, Any]], repeats: int = REPEATS) -> PairedProbe:
    """Seconds of each step under the settings of two arms, taken A B, then B A.

    Weights that both arms share are held once. Every step runs once in each arm before it is timed.
    """
    import torch

    from core_engine.config import EngineConfig
    from core_engine.environment import dtype_name
    from experiments.rig import Rig

    rig, configs = Rig(), [EngineConfig.from_settings(arm) for arm in arms]
    models = [rig.loaded(config) for config in configs]
    clocks = [_ProductClock(loaded.decoder) for loaded in models]
    both = list(zip(configs, models, strict=True))
    pairs = paired_seconds(steps, both, repeats, check=go_on, watch=lambda arm: clocks[arm])
    first, second = (_cut(clock.laps_s, repeats) for clock in clocks)
    loaded = models[0]
    return PairedProbe(
        tuple(pairs),
        loaded.kernels.kernels,
        dtype_name(loaded.weights.dtype),
        torch.get_num_threads(),
        tuple(zip(first, second, strict=True)) if all(clock.runs for clock in clocks) else (),
        (models[0].weights.num_bytes(), models[1].weights.num_bytes()),
    )


def _cut(numbers: list[float], length: int) -> list[list[float]]:
    return [numbers[first : first + length] for first in range(0, len(numbers), length)]


class _ProductClock(AbstractContextManager[Any]):
    """The time of the linear layers, head apart, of each compiled step inside it; it does not run with torch's
    operators."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.runs = hasattr(decoder, "operator_ns")
        self.laps_s: list[float] = []

    def __enter__(self) -> None:
        import numpy as np

        if self.runs:
            self._decoder.operator_ns = np.zeros(len(self._decoder.operator_names()), dtype=np.int64)

    def __exit__(self, *_: object) -> None:
        if self.runs:
            spent, self._decoder.operator_ns = self._decoder.operator_ns.tolist(), None
            names = self._decoder.operator_names()
            self.laps_s.append(sum(ns for name, ns in zip(names, spent, strict=True) if name in PRODUCTS) / 1e9)


def paired_seconds(
    steps: Sequence[ProbedStep],
    arms: Sequence[tuple[Any, Any]],
    repeats: int = REPEATS,
    *,
    longest_s: float = math.inf,
    check: Callable[[], None] = lambda: None,
    ran: Callable[[ProbedStep], None] = lambda _: None,
    watch: Callable[[int], AbstractContextManager[Any]] = lambda _: nullcontext(),
) -> list[Pairs]:
    """For each step the seconds of two arms, pair by pair: `seconds_in_turns` of two."""
    found = seconds_in_turns(steps, arms, repeats, longest_s=longest_s, check=check, ran=ran, watch=watch)
    return [(first, second) for first, second in found]


def seconds_in_turns(
    steps: Sequence[ProbedStep],
    arms: Sequence[tuple[Any, Any]],
    repeats: int = REPEATS,
    *,
    longest_s: float = math.inf,
    check: Callable[[], None] = lambda: None,
    ran: Callable[[ProbedStep], None] = lambda _: None,
    watch: Callable[[int], AbstractContextManager[Any]] = lambda _: nullcontext(),
) -> list[list[list[float]]]:
    """For each step the seconds of each arm, repeat by repeat, taken A B C, then C B A, after one run of each.

    arms: (configuration, loaded model) of each. A step is repeated for no longer than `longest_s` in each arm, but at
    least three times. `check` is called before each run of it and may raise, `ran` after it; `watch` of an arm's number
    is open around each of its timed steps. InputError as probe_steps.
    """
    positive("repeats", repeats, 1000)
    executors = [_executor(steps, config, loaded) for config, loaded in arms]
    devices = [loaded.weights.device.type for _, loaded in arms]
    every = range(len(arms))
    found = []
    for step in steps:
        plans = [_plan(step, config.block_size) for config, _ in arms]

        def timed(arm: int, plans: list[Any] = plans) -> float:
            check()
            return _timed(executors[arm], plans[arm], devices[arm])

        slowest_s = max(timed(arm) for arm in every)
        for _ in every:
            ran(step)
        seconds: list[list[float]] = [[] for _ in every]
        for repeat in range(min(repeats, max(3, int(min(longest_s / slowest_s, repeats))))):
            for arm in every if repeat % 2 == 0 else reversed(every):
                with watch(arm):
                    seconds[arm].append(timed(arm))
                ran(step)
        found.append(seconds)
    return found


def _loaded(settings: Mapping[str, Any] | None) -> tuple[Any, Any]:
    from core_engine.config import EngineConfig
    from core_engine.model.loader import load_model

    config = EngineConfig.from_settings(settings)
    return config, load_model(config)


def _executor(steps: Sequence[ProbedStep], config: Any, loaded: Any) -> Any:
    """An executor whose pool holds the largest of the steps; InputError for one beyond the model's positions."""
    from core_engine.executor.torch_executor import TorchExecutor
    from core_engine.kernels.options import StepOptions
    from core_engine.kv.format import KVFormat

    loaded.kernels.refuse_what_needs_compiled(config)
    spec, weights = loaded.spec, loaded.weights
    longest = max(step.seq_len for step in steps)
    if spec.max_position and longest > spec.max_position:
        raise InputError("seq_len", longest, f"at most the model's {spec.max_position:,} positions")
    form = KVFormat.from_config(config, weights.dtype)
    block_bytes = form.blocks.block_bytes(spec, config.block_size)
    blocks = max(step.batch * _blocks(step, config.block_size) for step in steps)
    executor = TorchExecutor(
        loaded.decoder,
        block_size=config.block_size,
        kv_memory_bytes=blocks * block_bytes,
        options=StepOptions.from_config(config),
        kv_format=form,
        num_slots=max(step.batch for step in steps),
    )
    if config.graph != "off":
        executor.capture(max(step.batch for step in steps))
    return executor


def _blocks(step: ProbedStep, block_size: int) -> int:
    return -(-step.seq_len // block_size)


def _plan(step: ProbedStep, block_size: int) -> Any:
    from core_engine.plan import GREEDY, Row, StepPlan

    prefill = step.phase == "prefill"
    share = _blocks(step, block_size)
    start = 0 if prefill else step.seq_len - 1
    tokens = (0,) * (step.seq_len if prefill else 1)
    rows = tuple(
        Row(f"probe{i}", start, tokens, tuple(range(i * share, (i + 1) * share)), prefill, GREEDY, slot=i)
        for i in range(step.batch)
    )
    return StepPlan(index=0, rows=rows, reserved=())


def _timed(executor: Any, plan: Any, device: str) -> float:
    import torch

    started = time.perf_counter()
    executor.execute(plan)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
