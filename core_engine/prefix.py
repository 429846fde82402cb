"""PrefixIndex: which KV block holds the tokens of which prefix.

A full block's key is a hash of its own tokens and of the key before it, so a key stands for a whole prefix. The first
key of a chain is the namespace: what else the KV depends on (model, KV format, rope, adapter). A hit compares the
tokens too, so that two prefixes with one hash are never taken for each other. Knows nothing of who holds a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

Digest = Callable[[bytes], bytes]


def digest_of(data: bytes) -> bytes:
    """16 bytes of BLAKE2b."""
    return blake2b(data, digest_size=16).digest()


def namespace(**parts: Any) -> str:
    """One text of everything besides the tokens that KV depends on; any difference makes another namespace."""
    return repr(sorted(parts.items()))


@dataclass(frozen=True)
class _Entry:
    block: int
    parent: bytes
    tokens: tuple[int, ...]


class PrefixIndex:
    """From prefixes, in whole blocks of `block_size` tokens, to blocks. One block a prefix: the first published."""

    def __init__(self, block_size: int, digest: Digest = digest_of) -> None:
        self.block_size = block_size
        self._digest = digest
        self._entries: dict[bytes, _Entry] = {}
        self._key_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self, space: str, tokens: Sequence[int], known: Sequence[bytes] = ()) -> list[bytes]:
        """Keys of all full blocks of `tokens`; `known` are those of its first blocks, computed before."""
        keys = list(known)
        for start in range(len(keys) * self.block_size, len(tokens) - self.block_size + 1, self.block_size):
            parent = keys[-1] if keys else self._digest(space.encode())
            keys.append(self._digest(parent + array("q", tokens[start : start + self.block_size]).tobytes()))
        return keys

    def match(self, space: str, keys: Sequence[bytes], tokens: Sequence[int], at_most: int) -> list[int]:
        """Blocks that hold the longest known prefix of `tokens`, of at most `at_most` tokens."""
        found: list[int] = []
        parent = self._digest(space.encode())
        for place in range(min(len(keys), at_most // self.block_size)):
            entry = self._entries.get(keys[place])
            if entry is None or entry.parent != parent or entry.tokens != self._tokens_of(tokens, place):
                break
            found.append(entry.block)
            parent = keys[place]
        return found

    def publish(self, block: int, space: str, keys: Sequence[bytes], tokens: Sequence[int], place: int) -> bool:
        """Make the block at `place` of a sequence findable; False when that prefix already has a block."""
        key = keys[place]
        if key in self._entries or block in self._key_of:
            return False
        parent = keys[place - 1] if place else self._digest(space.encode())
        self._entries[key] = _Entry(block, parent, self._tokens_of(tokens, place))
        self._key_of[block] = key
        return True

    def forget(self, blocks: Sequence[int]) -> None:
        """Remove blocks whose content is about to change."""
        for block in blocks:
            del self._entries[self._key_of.pop(block)]

    def _tokens_of(self, tokens: Sequence[int], place: int) -> tuple[int, ...]:
        return tuple(tokens[place * self.block_size : (place + 1) * self.block_size])
