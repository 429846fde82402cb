"""How requests get KV blocks: paged (blocks as they are needed, prefixes shared) or contiguous (one run, reserved).

Both hand out blocks of one BlockPool through one interface, so that the memory each of them wastes can be compared.
Owns the journal of who holds which block. Knows nothing of steps, policies or tensors.

Who frees what: a block is dropped exactly by `release` and `take_back` of the request that holds it, by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from core_engine.blocks import BlockPool
from core_engine.config import EngineConfig
from core_engine.prefix import PrefixIndex
from core_engine.request import Request

# What happened to whose blocks: take, share, drop, publish (now in the prefix index), evict (no longer in it).
KVEvent = tuple[str, str, tuple[int, ...]]


class KVLayout(Protocol):
    """Blocks for requests."""

    pool: BlockPool
    prefix: PrefixIndex | None

    def admit(self, request: Request, promised: int, *, alone: bool) -> bool:
        """Give a waiting request what it needs to start; False, and nothing changed, when it does not fit now.

        promised: available blocks that running requests still need for tokens they have. alone: nobody else runs.
        Sets num_computed to the tokens found in the prefix cache.
        """
        ...

    def grow(self, request: Request, num_tokens: int) -> list[int] | None:
        """The new blocks so that `num_tokens` tokens fit; None, and nothing changed, when there are too few."""
        ...

    def take_back(self, request: Request, blocks: Sequence[int]) -> None:
        """Undo a `grow` whose step was not executed."""
        ...

    def trim(self, request: Request) -> None:
        """Give back what lies behind the last token, where rejected drafts were."""
        ...

    def publish(self, request: Request) -> None:
        """Make the full blocks whose KV is computed findable for others."""
        ...

    def release(self, request: Request) -> None:
        """Drop everything the request holds."""
        ...

    def owed(self, request: Request) -> int:
        """Blocks an admitted request still needs for the tokens it already has."""
        ...

    def forget_prefixes(self) -> int:
        """Empty the prefix cache, of running requests too, which keep their blocks: how many blocks it had."""
        ...

    def largest_free(self) -> int:
        """Free blocks that one more request could be given at most."""
        ...

    @property
    def journal(self) -> Sequence[KVEvent]:
        """What happened since the last `drain`."""
        ...

    def drain(self) -> list[KVEvent]:
        """The journal since the last call."""
        ...

    def restate(self, requests: Sequence[Request]) -> None:
        """Begin the journal anew with who holds what and what is in the prefix index now."""
        ...


class _Layout:
    """What both layouts share: the pool, its journal, and giving blocks back."""

    prefix: PrefixIndex | None = None

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._journal: list[KVEvent] = []

    def release(self, request: Request) -> None:
        """Drop every block, the last first, so that the beginning of a cached prefix outlives its end."""
        self._drop(request, request.blocks[::-1])
        request.blocks = ()
        request.num_published = 0

    def take_back(self, request: Request, blocks: Sequence[int]) -> None:
        """Undo a `grow`: its blocks are the last of the table."""
        request.blocks = request.blocks[: len(request.blocks) - len(blocks)]
        self._drop(request, blocks)

    @property
    def journal(self) -> Sequence[KVEvent]:
        """What happened since the last `drain`."""
        return tuple(self._journal)

    def restate(self, requests: Sequence[Request]) -> None:
        """Begin the journal anew: the holds of `requests`, and the blocks of the prefix index."""
        self._journal = []
        for request in requests:
            self._note("take", request.id, request.blocks)
        self._note("publish", "", self.pool.kept)

    def drain(self) -> list[KVEvent]:
        """The journal since the last call."""
        events, self._journal = self._journal, []
        return events

    def forget_prefixes(self) -> int:
        """See KVLayout; without a prefix cache there is none to empty."""
        blocks = self.pool.unkeep()
        if self.prefix is not None and blocks:
            self.prefix.forget(blocks)
            self._note("evict", "", blocks)
        return len(blocks)

    def _note(self, what: str, request_id: str, blocks: Iterable[int]) -> None:
        if found := tuple(blocks):
            self._journal.append((what, request_id, found))

    def _give(self, request: Request, blocks: list[int]) -> list[int]:
        request.blocks += tuple(blocks)
        self._note("take", request.id, blocks)
        return blocks

    def _drop(self, request: Request, blocks: Sequence[int]) -> None:
        self.pool.drop(blocks)
        self._note("drop", request.id, blocks)


class PagedLayout(_Layout):
    """Blocks one by one as tokens come; with a prefix index, full blocks are shared between equal prefixes.

    watermark_blocks stay available when a new request is admitted beside others, so that those can grow.
    """

    def __init__(self, pool: BlockPool, prefix: PrefixIndex | None = None, *, watermark_blocks: int = 0) -> None:
        super().__init__(pool)
        self.prefix = prefix
        self._watermark = watermark_blocks
        if prefix is not None:
            pool.on_evict = self._evicted

    def _evicted(self, blocks: list[int]) -> None:
        assert self.prefix is not None
        self.prefix.forget(blocks)
        self._note("evict", "", blocks)

    def admit(self, request: Request, promised: int, *, alone: bool) -> bool:
        """Match the prefix first, then size what is left: the whole of what the request has must fit now."""
        shared = self._match(request)
        waking = sum(self.pool.is_cached(block) for block in shared)  # held from now on, so no longer available
        spare = 0 if alone else self._watermark
        need = self.pool.blocks_for(len(request.tokens)) - len(shared)
        if need > self.pool.num_available - waking - promised - spare:
            return False
        for block in shared:
            self.pool.share(block)
        self._note("share", request.id, shared)
        request.blocks += tuple(shared)
        request.num_computed = len(shared) * self.pool.block_size
        request.num_published = len(shared)
        return True

    def _match(self, request: Request) -> list[int]:
        if self.prefix is None:
            return []
        self._extend_keys(request)
        # At least one token is computed: its logits are what the request came for.
        return self.prefix.match(request.namespace, request.block_keys, request.tokens, request.most_shared_tokens)

    def _extend_keys(self, request: Request) -> None:
        assert self.prefix is not None
        if (len(request.block_keys) + 1) * self.pool.block_size <= len(request.tokens):
            request.block_keys = self.prefix.keys(request.namespace, request.tokens, request.block_keys)

    def grow(self, request: Request, num_tokens: int) -> list[int] | None:
        """As many blocks as are missing."""
        need = self.pool.blocks_for(num_tokens) - len(request.blocks)
        if need > self.pool.num_available:
            return None
        return self._give(request, self.pool.take(need)) if need > 0 else []

    def trim(self, request: Request) -> None:
        """Blocks that hold none of its tokens; none of them has been published."""
        surplus = request.blocks[self.pool.blocks_for(len(request.tokens)) :]
        if surplus:
            self.take_back(request, surplus)

    def publish(self, request: Request) -> None:
        """Only full blocks, and only those computed by a committed step: nobody reads KV that is not there yet."""
        full = request.num_computed // self.pool.block_size
        if self.prefix is None or full <= request.num_published:
            return
        self._extend_keys(request)
        new = []
        for place in range(request.num_published, full):
            block = request.blocks[place]
            if self.prefix.publish(block, request.namespace, request.block_keys, request.tokens, place):
                self.pool.keep(block)
                new.append(block)
        request.num_published = full
        self._note("publish", request.id, new)

    def owed(self, request: Request) -> int:
        """Blocks for the tokens it has, less those it holds."""
        return max(0, self.pool.blocks_for(len(request.tokens)) - len(request.blocks))

    def largest_free(self) -> int:
        """Any free block will do, so all of them."""
        return self.pool.num_free


class ContiguousLayout(_Layout):
    """One run of neighbouring blocks for the longest a request may become, reserved when it is admitted.

    This is how engines kept KV before paging. most_tokens bounds a reservation: the model's positions or the pool.
    """

    def __init__(self, pool: BlockPool, most_tokens: int) -> None:
        super().__init__(pool)
        self._most_tokens = most_tokens

    def admit(self, request: Request, promised: int, *, alone: bool) -> bool:
        """The first run that is long enough (first fit)."""
        size = min(max(request.max_total_tokens, len(request.tokens)), self._most_tokens)
        run = self.pool.take_run(self.pool.blocks_for(size))
        if run is None:
            return False
        self._give(request, run)
        return True

    def grow(self, request: Request, num_tokens: int) -> list[int] | None:
        """Nothing to add: the reservation holds all that can come."""
        return []

    def trim(self, request: Request) -> None:
        """The reservation stays."""

    def publish(self, request: Request) -> None:
        """A run belongs to one request: nothing is shared."""

    def owed(self, request: Request) -> int:
        """Everything is reserved."""
        return 0

    def largest_free(self) -> int:
        """The longest run."""
        return self.pool.largest_free_run()


def kv_layout(config: EngineConfig, pool: BlockPool, max_position: int) -> KVLayout:
    """The layout that `kv_layout` names, with a prefix index when `prefix_cache` is on."""
    if config.kv_layout == "contiguous":
        return ContiguousLayout(pool, min(max_position, pool.num_blocks * pool.block_size))
    prefix = PrefixIndex(pool.block_size) if config.prefix_cache == "on" else None
    return PagedLayout(pool, prefix, watermark_blocks=int(config.kv_watermark * pool.num_blocks))
