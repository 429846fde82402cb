"""The memory of a KV cache: bytes of a block, how many blocks a size holds, and the cache itself. Runs nothing."""

from __future__ import annotations

import torch

from core_engine.kv.block import BlockLayout
from core_engine.kv.cache import QuantizedCache
from core_engine.kv.format import KVFormat
from core_engine.memory_readings import prefer_huge_pages
from core_engine.model.spec import DecoderSpec
from ledger.errors import InputError

MIB = 1024**2


def block_bytes_of(spec: DecoderSpec, form: KVFormat, block_size: int) -> int:
    """Bytes of one block in all layers of `spec`."""
    if form.is_quantized:
        layout = BlockLayout.of(form.blocks, block_size, spec.num_kv_heads, spec.head_dim)
        return spec.num_layers * layout.block_bytes
    return spec.num_layers * 2 * block_size * spec.num_kv_heads * spec.head_dim * form.dtype.itemsize


def blocks_in(kv_memory_bytes: int, block_bytes: int) -> int:
    """Whole blocks that so much memory holds; InputError when it holds none."""
    found = kv_memory_bytes // block_bytes
    if found < 1:
        raise InputError(
            "kv_memory_mib",
            kv_memory_bytes // MIB,
            f"at least {-(-block_bytes // MIB)}: one block is {block_bytes:,} B",
        )
    return found


def make_cache(
    spec: DecoderSpec, form: KVFormat, num_blocks: int, block_size: int, num_slots: int, device: torch.device
) -> torch.Tensor | QuantizedCache:
    """A cache of so many blocks and the padding block behind them, written once so that its pages are resident."""
    blocks = num_blocks + 1
    cache: torch.Tensor | QuantizedCache
    if form.is_quantized:
        cache = QuantizedCache(spec, form, blocks, block_size, num_slots, device)
    else:
        shape = (spec.num_layers, 2, blocks, block_size, spec.num_kv_heads, spec.head_dim)
        cache = torch.empty(shape, dtype=form.dtype, device=device)
    for tensor in tensors_of_cache(cache):
        prefer_huge_pages(tensor)
        tensor.zero_()
    return cache


def tensors_of_cache(cache: torch.Tensor | QuantizedCache) -> list[torch.Tensor]:
    """All memory of a cache, the pool first."""
    return cache.tensors() if isinstance(cache, QuantizedCache) else [cache]
