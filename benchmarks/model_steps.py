"""Steps of the embedded model for the benchmarks: decoders of every kind, loaded once, and rows of chosen sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kernels.options import StepOptions
from core_engine.model.loader import LoadedModel, load_model
from core_engine.plan import GREEDY, Row, RowSampling, StepPlan

BLOCK_SIZE = 16
POOL_TOKENS = 32 * 2048


@cache
def loaded(dtype: str, kernels: str = "compiled") -> LoadedModel:
    """The embedded model."""
    return load_model(EngineConfig.from_settings({"dtype": dtype, "kernels": kernels, "device": "cpu"}))


@cache
def executor(dtype: str, kernels: str = "compiled", options: StepOptions = StepOptions()) -> TorchExecutor:
    """An executor with room for `POOL_TOKENS`; those of one dtype share a cache, since only one runs at a time."""
    decoder = loaded(dtype, kernels).decoder
    spec = decoder.spec
    token_bytes = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * decoder.weights.dtype.itemsize
    made = TorchExecutor(decoder, block_size=BLOCK_SIZE, kv_memory_bytes=BLOCK_SIZE * token_bytes, options=options)
    made._cache, made.num_blocks = _cache(dtype, spec.num_layers, spec.num_kv_heads, spec.head_dim)
    return made


@cache
def _cache(dtype: str, layers: int, heads: int, width: int) -> tuple[torch.Tensor, int]:
    kind = loaded(dtype).weights.dtype
    blocks = POOL_TOKENS // BLOCK_SIZE
    # Written, or all pages that were never written would be one and the same page of zeros, and in the cache.
    return torch.full((layers, 2, blocks + 1, BLOCK_SIZE, heads, width), 0.01, dtype=kind), blocks


def decodes(batch: int, context: int, first_block: int = 0, sampling: RowSampling = GREEDY) -> tuple[Row, ...]:
    """`batch` rows whose last token of `context` is new; their blocks lie in turns, as when they grow together."""
    share = -(-context // BLOCK_SIZE)
    return tuple(
        Row(f"d{i}", context - 1, (1000 + i,), tuple(range(first_block + i, first_block + share * batch, batch)), False,
            sampling)
        for i in range(batch)
    )  # fmt: skip


def prefill(tokens: int, first_block: int = 0) -> tuple[Row, ...]:
    """One row, all of whose tokens are new."""
    blocks = range(first_block, first_block + -(-tokens // BLOCK_SIZE))
    return (Row("p", 0, tuple(1000 + i % 40_000 for i in range(tokens)), tuple(blocks), True, GREEDY),)


def step(runner: TorchExecutor, rows: Sequence[Row]) -> Callable[[], Any]:
    """A function that computes one step of these rows."""
    plan = StepPlan(index=0, rows=tuple(rows), reserved=())
    return lambda: runner.execute(plan)


def logits(runner: TorchExecutor, rows: Sequence[Row], wanted: Sequence[int]) -> Callable[[], torch.Tensor]:
    """A function that computes the logits of the flat token places `wanted`, without sampling."""
    return lambda: runner._logits(rows, wanted, None)


def fresh_workspace(runner: TorchExecutor) -> None:
    """Let the compiled step's buffers go, so that the next step takes new ones."""
    runner._decoder._workspace = torch.empty(0)  # type: ignore[union-attr]


def workspace_bytes(runner: TorchExecutor, rows: Sequence[Row]) -> int:
    """Bytes of buffers that a step of these rows needs."""
    fresh_workspace(runner)
    step(runner, rows)()
    return int(runner._decoder._workspace.nbytes)  # type: ignore[union-attr]
