"""Single steps of an executor on a device: time, and how near they are to what its memory and arithmetic allow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_engine.config import EngineConfig
from core_engine.executor.base import CaptureCost
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kernels.options import StepOptions
from core_engine.kv.format import KVFormat
from core_engine.model.loader import LoadedModel
from core_engine.plan import GREEDY, Row, StepPlan
from gpu.ceilings import seconds_on_device

BLOCK_SIZE = 16
STEPS_IN_A_ROW = 8
HOST_REPEATS = 15


@dataclass(frozen=True)
class Ceilings:
    """Of the device, in this run."""

    copy_bytes_per_s: float
    product_flops_per_s: float


@dataclass(frozen=True)
class StepKind:
    """`batch` sequences of `context` tokens, the newest of each computed; prefill: one sequence, all of it."""

    batch: int
    context: int
    prefill: bool = False

    def plan(self) -> StepPlan:
        """Rows over blocks of their own."""
        share = -(-self.context // BLOCK_SIZE)
        count = self.context if self.prefill else 1
        rows = [
            Row(
                f"row{index}", self.context - count, (7,) * count,
                tuple(range(index * share, (index + 1) * share)), self.prefill, GREEDY, slot=index,
            )
            for index in range(self.batch)
        ]  # fmt: skip
        return StepPlan(index=0, rows=tuple(rows), reserved=())

    @property
    def blocks(self) -> int:
        """Blocks of all sequences."""
        return self.batch * -(-self.context // BLOCK_SIZE)


def executor_for(loaded: LoadedModel, kind: StepKind, settings: Mapping[str, Any]) -> TorchExecutor:
    """One whose pool holds the step, with the steps of single tokens captured where `settings` have graphs."""
    config = EngineConfig.from_settings(settings)
    form = KVFormat.from_config(config, loaded.weights.dtype)
    executor = TorchExecutor(
        loaded.decoder,
        block_size=BLOCK_SIZE,
        kv_memory_bytes=kind.blocks * form.blocks.block_bytes(loaded.spec, BLOCK_SIZE),
        options=StepOptions.from_config(config),
        kv_format=form,
        num_slots=kind.batch,
    )
    if not kind.prefill:
        executor.captured = executor.capture(kind.batch)
    return executor


def measured(
    loaded: LoadedModel, kind: StepKind, ceilings: Ceilings, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One row of the report: seconds of a step on the device and as its caller sees it, bytes and operations a second
    and their share of the ceilings."""
    settings = {"block_size": BLOCK_SIZE, **(settings or {})}
    executor, plan = executor_for(loaded, kind, settings), kind.plan()
    device_s = seconds_on_device(lambda: executor.launch(plan), times=1 if kind.prefill else STEPS_IN_A_ROW)
    waited = []
    for _ in range(HOST_REPEATS if not kind.prefill else 3):
        began_s = time.perf_counter()
        executor.execute(plan)
        waited.append(time.perf_counter() - began_s)
    form = KVFormat.from_config(EngineConfig.from_settings(settings), loaded.weights.dtype)
    num_bytes = read_bytes(loaded, kind, form)
    flops = operations(loaded, kind)
    captured = executor.captured
    return {
        "model": loaded.name,
        "phase": "prefill" if kind.prefill else "decode",
        "batch": kind.batch,
        "context": kind.context,
        "kv": form.name,
        "settings": dict(settings),
        "captured": vars(captured) if isinstance(captured, CaptureCost) else captured,
        "device_ms": device_s * 1e3,
        "waited_ms": statistics.median(waited) * 1e3,
        "read_bytes": num_bytes,
        "read_share": num_bytes / device_s / ceilings.copy_bytes_per_s,
        "flops": flops,
        "product_share": flops / device_s / ceilings.product_flops_per_s,
    }


def read_bytes(loaded: LoadedModel, kind: StepKind, form: KVFormat) -> int:
    """Weights that a step reads once (of an embedding that is not the head a row a token, left out), and KV."""
    weights = loaded.decoder.weights
    total = weights.num_bytes()
    if weights.head is not weights.embedding:
        total -= weights.embedding.untyped_storage().nbytes()
    per_block = form.blocks.block_bytes(loaded.spec, BLOCK_SIZE)
    return total + (0 if kind.prefill else kind.blocks * per_block)


def operations(loaded: LoadedModel, kind: StepKind) -> int:
    """Of linear layers, 2 a weight and token, and of attention, 4 x head_dim a query head and visible key."""
    spec = loaded.decoder.spec
    tokens = kind.context if kind.prefill else kind.batch
    query, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = spec.hidden_size * (2 * query + 2 * kv + 3 * spec.intermediate_size)
    pairs = kind.context * (kind.context + 1) // 2 if kind.prefill else kind.batch * kind.context
    head = spec.hidden_size * spec.vocab_size * kind.batch
    return 2 * (spec.num_layers * layer * tokens + head) + 4 * query * pairs * spec.num_layers
