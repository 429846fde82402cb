"""BlockPool: the fixed set of KV blocks, handed out and taken back in whole.

Owns which block is free. Knows nothing of requests or tensors. Invariant: free + used = total, no block twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free: deque[int] = deque(range(num_blocks))
        self._used: set[int] = set()

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks owned by somebody."""
        return len(self._used)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, all or none; MemoryError when fewer are free."""
        if count > len(self._free):
            raise MemoryError(f"{count} KV blocks asked for, {len(self._free)} free")
        taken = [self._free.popleft() for _ in range(count)]
        self._used.update(taken)
        return taken

    def free(self, blocks: Iterable[int]) -> None:
        """Give blocks back; ValueError on one that is not in use (a double free)."""
        for block in blocks:
            if block not in self._used:
                raise ValueError(f"block {block} is freed but not in use")
            self._used.remove(block)
            self._free.append(block)

    def check(self) -> None:
        """Assert the pool's invariant; cheap enough to stay on."""
        assert len(self._free) + len(self._used) == self.num_blocks, "KV blocks were lost or duplicated"
