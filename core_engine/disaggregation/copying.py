"""KV blocks between an executor's cache and the shared area, in the format in which the cache holds them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core_engine.disaggregation.area import KVArea
from core_engine.disaggregation.leases import Lease
from core_engine.executor.torch_executor import TorchExecutor


def copy_out(executor: TorchExecutor, blocks: Sequence[int], area: KVArea, lease: Lease) -> int:
    """Write the blocks to the lease's first units, in order; bytes written."""
    cache = executor.cache_tensors()[0]
    for unit, block in zip(lease.units, blocks, strict=False):
        area.begin(unit)
        _as_block(torch.from_numpy(area.place(unit)), cache).copy_(cache[:, :, block])
        area.end(unit, lease.sequence)
    return len(blocks) * area.unit_bytes


def copy_in(executor: TorchExecutor, blocks: Sequence[int], area: KVArea, lease: Lease, first: int) -> int:
    """Read the lease's units from place `first` on into the blocks; bytes read. TornTransfer when one is not whole."""
    cache = executor.cache_tensors()[0]
    for unit, block in zip(lease.units[first:], blocks, strict=False):
        cache[:, :, block].copy_(_as_block(torch.from_numpy(area.read(unit, lease.sequence)), cache))
    return len(blocks) * area.unit_bytes


def _as_block(memory: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """[num_layers, 2, block_size, num_kv_heads, head_dim] of a unit's bytes."""
    layers, two, _, *block = cache.shape
    return memory.view(cache.dtype).view(layers, two, *block)
