"""Times single steps of an engine's executor: a prefill or a decode of chosen sizes, without a scheduler.

Owns the dummy rows and the repeats. What the steps should cost is the ledger's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.calibrate import summary
from ledger.errors import InputError
from ledger.formats import positive
from ledger.model_spec import ModelSpec

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

    from core_engine.config import EngineConfig
    from core_engine.environment import dtype_name
    from core_engine.executor.torch_executor import TorchExecutor
    from core_engine.model.loader import load_model

    positive("repeats", repeats, 1000)
    config = EngineConfig.from_settings(settings)
    loaded = load_model(config)
    spec, weights = loaded.spec, loaded.weights.embedding
    longest = max(step.seq_len for step in steps)
    if spec.max_position and longest > spec.max_position:
        raise InputError("seq_len", longest, f"at most the model's {spec.max_position:,} positions")
    block_bytes = sum(layer.kv_elements for layer in spec.layers) * weights.element_size() * config.block_size
    blocks = max(step.batch * _blocks(step, config.block_size) for step in steps)
    executor = TorchExecutor(loaded.decoder, block_size=config.block_size, kv_memory_bytes=blocks * block_bytes)
    seconds = []
    for step in steps:
        on_step(step)
        plan, device = _plan(step, config.block_size), weights.device.type
        first_s = _timed(executor, plan, device)
        affordable = max(min(3, repeats), int(LONGEST_S / first_s))
        seconds.append(summary([_timed(executor, plan, device) for _ in range(min(repeats, affordable))]))
    return Probe(spec, dtype_name(weights.dtype), weights.device.type, torch.get_num_threads(), tuple(seconds))


def _blocks(step: ProbedStep, block_size: int) -> int:
    return -(-step.seq_len // block_size)


def _plan(step: ProbedStep, block_size: int) -> Any:
    from core_engine.plan import GREEDY, Row, StepPlan

    prefill = step.phase == "prefill"
    share = _blocks(step, block_size)
    start = 0 if prefill else step.seq_len - 1
    tokens = (0,) * (step.seq_len if prefill else 1)
    rows = tuple(
        Row(f"probe{i}", start, tokens, tuple(range(i * share, (i + 1) * share)), prefill, GREEDY)
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
