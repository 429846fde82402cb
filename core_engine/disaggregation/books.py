"""Books: who holds which blocks of both pools, kept from the journals that the sides report with their steps.

The pools stand one behind the other: decode's blocks are numbered from where prefill's end, so that a record reads as
one pool. When a side is lost, all that was held there is dropped in the journal too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Event = list[Any]
KV_KEYS = (
    "used_tokens", "held_tokens", "internal_tokens", "unused_tokens", "cached_tokens", "free_tokens",
    "largest_free_tokens",
)  # fmt: skip
STATE_KEYS = ("running", "waiting", "slots_held", "kv_used_blocks", "kv_used_tokens", "kv_reserved_tokens")


class Books:
    """Pools of `num_blocks` blocks each, one a side."""

    def __init__(self, num_blocks: int, block_size: int, sides: int = 2) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._tables: list[dict[str, list[int]]] = [{} for _ in range(sides)]
        self._kept: list[set[int]] = [set() for _ in range(sides)]
        self._owed: list[Event] = []  # events that no step has told yet
        self._last = [self._nothing() for _ in range(sides)]

    def _nothing(self) -> dict[str, Any]:
        free = self.num_blocks * self.block_size
        kv = dict.fromkeys(KV_KEYS, 0) | {"free_tokens": free, "largest_free_tokens": free}
        return {**dict.fromkeys(STATE_KEYS, 0), "kv": kv}

    @property
    def total(self) -> int:
        """Blocks of all pools."""
        return self.num_blocks * len(self._tables)

    @property
    def used(self) -> int:
        """Blocks in use in all pools, as the sides last said."""
        return sum(int(last["kv_used_blocks"]) for last in self._last)

    @property
    def kv(self) -> dict[str, int]:
        """Tokens by kind over all pools, as the sides last said."""
        return {key: sum(int(last["kv"][key]) for last in self._last) for key in KV_KEYS}

    def enter(self, side: int, step: dict[str, Any]) -> dict[str, Any]:
        """A step's record with both pools in it: the side's own numbers beside the other's last."""
        before = [*self._owed, *self._events(side, step["kv_events"])]
        self._owed = []
        after = self._events(side, step["kv_commit_events"])
        self._last[side] = {key: step[key] for key in (*STATE_KEYS, "kv")}
        sums = {key: sum(int(last[key]) for last in self._last) for key in STATE_KEYS}
        return {**step, **sums, "kv": self.kv, "kv_events": before, "kv_commit_events": after}

    def after(self, journals: Iterable[tuple[int, Iterable[Sequence[Any]]]]) -> list[Event]:
        """What happened since the last step, of (side, its journal) each. It changes nothing here."""
        new = [[what, name, self._numbered(at, blocks)] for at, events in journals for what, name, blocks in events]
        return [*self._owed, *new]

    def lose(self, side: int) -> None:
        """A side's process is gone, with its pool."""
        first = side * self.num_blocks
        tables, self._tables[side] = self._tables[side], {}
        kept, self._kept[side] = self._kept[side], set()
        self._owed += [["drop", name, [first + block for block in table]] for name, table in tables.items() if table]
        if kept:
            self._owed.append(["evict", "", [first + block for block in sorted(kept)]])
        self._last[side] = self._nothing()

    def restate(self) -> None:
        """Begin the journal anew with who holds what now."""
        self._owed = []
        for side, tables in enumerate(self._tables):
            self._owed += [["take", name, self._numbered(side, table)] for name, table in tables.items() if table]
            if self._kept[side]:
                self._owed.append(["publish", "", self._numbered(side, sorted(self._kept[side]))])

    def owners(self) -> dict[int, tuple[str, int]]:
        """Of every held block (holder, place in its table)."""
        return {
            side * self.num_blocks + block: (name, place)
            for side, tables in enumerate(self._tables)
            for name, table in tables.items()
            for place, block in enumerate(table)
        }

    def held(self, request_id: str) -> int:
        """Blocks that a request holds in all pools."""
        return sum(len(tables.get(request_id, ())) for tables in self._tables)

    def cached(self) -> list[int]:
        """Blocks whose content may be found although nobody holds them."""
        owned = self.owners()
        every = (side * self.num_blocks + block for side, kept in enumerate(self._kept) for block in sorted(kept))
        return [block for block in every if block not in owned]

    def _events(self, side: int, journal: Iterable[Sequence[Any]]) -> list[Event]:
        found = []
        for what, name, blocks in journal:
            self._follow(side, what, name, blocks)
            found.append([what, name, self._numbered(side, blocks)])
        return found

    def _numbered(self, side: int, blocks: Iterable[int]) -> list[int]:
        return [side * self.num_blocks + block for block in blocks]

    def _follow(self, side: int, what: str, name: str, blocks: Sequence[int]) -> None:
        tables, kept = self._tables[side], self._kept[side]
        if what in ("take", "share"):
            tables.setdefault(name, []).extend(blocks)
        elif what == "drop":
            left = tables.get(name, [])
            for block in blocks:
                if left and left[-1] == block:  # a release gives the last back first
                    left.pop()
                elif block in left:
                    left.remove(block)
            if not left:
                tables.pop(name, None)
        elif what == "publish":
            kept.update(blocks)
        elif what == "evict":
            kept.difference_update(blocks)
