"""BlockPool: the fixed set of KV blocks and how many requests hold each.

A block is held (by one request, or by several that share a prefix), cached (nobody holds it but the prefix index knows
its content, so it may be shared again or overwritten), or free. Knows nothing of requests, tokens or tensors.
Invariant: held + cached + free = total.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each.

    `on_evict` is told the cached blocks whose content is about to be overwritten.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.on_evict: Callable[[list[int]], None] = lambda _: None
        self.num_duplicates = 0  # holders beyond the first, over all blocks: what sharing saves
        self._holders = [0] * num_blocks
        # Ordered sets, the oldest first: any block can leave in constant time, and the first one too. (A plain dict
        # finds its first key by passing over all that were taken from its front: 0.1 ms at 20,000 blocks.)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently dropped first
        self._kept: set[int] = set()  # blocks to cache, not to free, once nobody holds them

    @property
    def num_free(self) -> int:
        """Blocks with no content worth keeping."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks nobody holds whose content may be found again."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can give: free and cached."""
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks held by somebody."""
        return self.num_blocks - self.num_available

    @property
    def cached(self) -> list[int]:
        """The cached blocks, the next to be overwritten first."""
        return list(self._cached)

    @property
    def kept(self) -> list[int]:
        """The blocks that are or will be cached once nobody holds them."""
        return sorted(self._kept)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def is_cached(self, block: int) -> bool:
        """Whether nobody holds the block while its content is kept."""
        return block in self._cached

    def take(self, count: int) -> list[int]:
        """Hold `count` blocks, free ones first, then the least recently used cached ones. MemoryError if too few."""
        if count > self.num_available:
            raise MemoryError(f"{count} KV blocks asked for, {self.num_available} available")
        taken = [self._free.popitem(last=False)[0] for _ in range(min(count, len(self._free)))]
        evicted = [self._cached.popitem(last=False)[0] for _ in range(count - len(taken))]
        if evicted:
            self._kept.difference_update(evicted)
            self.on_evict(evicted)
        return self._hold(taken + evicted)

    def take_run(self, count: int) -> list[int] | None:
        """Hold the first run of `count` neighbouring free blocks; None when there is none that long."""
        for start, length in self._free_runs():
            if length >= count:
                run = list(range(start, start + count))
                for block in run:
                    del self._free[block]
                return self._hold(run)
        return None

    def largest_free_run(self) -> int:
        """Blocks in the longest run of neighbouring free blocks."""
        return max((length for _, length in self._free_runs()), default=0)

    def _free_runs(self) -> list[tuple[int, int]]:
        """(first block, length) of each run of neighbouring free blocks, in order."""
        free = np.zeros(self.num_blocks + 2, dtype=np.int8)
        free[np.fromiter(self._free, dtype=np.int64, count=len(self._free)) + 1] = 1
        edges = np.flatnonzero(np.diff(free))
        return [(int(start), int(stop - start)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]

    def _hold(self, blocks: list[int]) -> list[int]:
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Hold a block whose content is known, beside whoever holds it. ValueError on a free block."""
        if block in self._free:
            raise ValueError(f"block {block} is shared but free")
        self._cached.pop(block, None)
        self.num_duplicates += self._holders[block] > 0
        self._holders[block] += 1

    def keep(self, block: int) -> None:
        """Cache this held block, instead of freeing it, once nobody holds it."""
        self._kept.add(block)

    def unkeep(self) -> list[int]:
        """Keep no content: cached blocks become free, held ones will be. Returns all whose content was to be kept."""
        kept = self.kept
        self._free.update(self._cached)
        self._cached.clear()
        self._kept.clear()
        return kept

    def drop(self, blocks: Iterable[int]) -> None:
        """Give up one hold on each block; ValueError on one that nobody holds (a double free).

        The first blocks given are the first to be overwritten, among those that end up cached.
        """
        for block in blocks:
            if self._holders[block] < 1:
                raise ValueError(f"block {block} is dropped but nobody holds it")
            self._holders[block] -= 1
            if self._holders[block]:
                self.num_duplicates -= 1
            else:
                (self._cached if block in self._kept else self._free)[block] = None

    def check(self, num_holds: int) -> None:
        """Assert the invariants, given how many entries the requests' block tables have in all. Constant time."""
        assert self.num_used + self.num_duplicates == num_holds, "KV blocks are held without a table, or lost"

    def check_each(self, tables: Iterable[Iterable[int]]) -> None:
        """Assert that every block's holders are exactly the tables it stands in. For tests: takes time per block."""
        counted = [0] * self.num_blocks
        for table in tables:
            for block in table:
                counted[block] += 1
        assert counted == self._holders, "a block's holders are not the tables it stands in"
        unheld = {block for block, holders in enumerate(counted) if not holders}
        assert self._free.keys() | self._cached.keys() == unheld and not self._free.keys() & self._cached.keys()
        assert self._cached.keys() <= self._kept, "a cached block has no content to be found"
