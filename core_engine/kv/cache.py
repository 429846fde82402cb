"""QuantizedCache: the bytes of all blocks, and the full-precision blocks of the running requests' slots.

A block is quantized once, when its last token is written. Until then it lies in its request's slot; a query reads its
own block there (or as the step has just computed it) and every block before its own as bytes, in prefill as in decode,
so that an answer does not depend on how its tokens came into steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from core_engine.kv.block import BlockLayout
from core_engine.kv.format import KVFormat
from core_engine.model.spec import DecoderSpec


class QuantizedCache:
    """raw [num_layers, num_blocks, block_bytes] uint8: a block's keys and values (kv/block.py).

    open [num_slots, copies, num_layers, 2, block_size, num_kv_heads, head_dim] float32: of each slot the block that is
    not full yet, then those of the beginning of its sequence that are never quantized.
    """

    def __init__(
        self, spec: DecoderSpec, form: KVFormat, num_blocks: int, block_size: int, num_slots: int, device: torch.device
    ) -> None:
        sizes = (block_size, spec.num_kv_heads, spec.head_dim)
        self.form = form
        self.layout = BlockLayout.of(form.blocks, *sizes)
        self.num_blocks, self.block_size, self.sinks = num_blocks, block_size, form.blocks.sink_blocks
        self.raw = torch.empty(spec.num_layers, num_blocks, self.layout.block_bytes, dtype=torch.uint8, device=device)
        self.open = torch.empty(num_slots, 1 + self.sinks, spec.num_layers, 2, *sizes, device=device)

    def tensors(self) -> list[torch.Tensor]:
        """All memory."""
        return [self.raw, self.open]

    def tail_bytes(self) -> int:
        """Bytes of the slots."""
        return self.open.untyped_storage().nbytes()

    def __iter__(self) -> Iterator[QuantizedLayer]:
        for layer in range(len(self.raw)):
            yield QuantizedLayer(self, layer)


class QuantizedLayer:
    """One layer of the cache: how a row's new tokens are kept, and what its queries read."""

    def __init__(self, cache: QuantizedCache, layer: int) -> None:
        self._cache = cache
        self._raw = cache.raw[layer]
        self._slots = cache.open[:, :, layer]

    def write(self, slot: int, blocks: torch.Tensor, start: int, new: torch.Tensor) -> torch.Tensor:
        """Keep new [2, count, kv_heads, head_dim] float32, the keys and values from `start` on. Returns [2, ...] the
        own blocks of all of them, as computed: from the first token of the block of `start` to the last new one.

        What begins inside a block must not leave another one open: ValueError.
        """
        size = self._cache.block_size
        first, end = start // size, start + new.shape[1]
        tail = self._slots[slot, 0]
        own = torch.cat([tail[:, : start % size], new], dim=1)
        closed, rest = end // size, end % size
        if start % size and closed > first and rest:
            raise ValueError(f"tokens {start} to {end} begin inside a block of {size} and leave another one open")
        for place in range(first, min(closed, self._cache.sinks)):
            self._slots[slot, 1 + place] = own[:, (place - first) * size : (place - first + 1) * size]
        place = max(first, self._cache.sinks)
        if closed > place:
            whole = own[:, (place - first) * size : (closed - first) * size].unflatten(1, (closed - place, size))
            self._raw[blocks[place:closed]] = self._cache.layout.quantize(whole[0], whole[1])
        if rest:
            tail[:, :rest] = own[:, own.shape[1] - rest :]
        return own

    def before(self, slot: int, blocks: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """float32 [2, tokens, kv_heads, head_dim] of the blocks at places [first, last), as they are read back."""
        sinks = [self._slots[slot, 1 + place] for place in range(first, min(last, self._cache.sinks))]
        quantized = blocks[max(first, self._cache.sinks) : last]
        read = torch.stack(self._cache.layout.dequantize(self._raw[quantized])).flatten(1, 2)
        return torch.cat([*sinks, read], dim=1)

    @property
    def block_size(self) -> int:
        """Tokens in a block."""
        return self._cache.block_size
