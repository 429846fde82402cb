"""Which steps are measured to know how long any step takes: prompts and their pieces, decode rows, and both together.

Pure: rows are (start, count, rows of logits, whether it is a piece of a prompt). Sizes cover what the settings allow.
"""

from __future__ import annotations

from dataclasses import dataclass

Rows = tuple[tuple[int, int, int, bool], ...]


@dataclass(frozen=True)
class Designed:
    """A step to measure; group: steps alike, which are left out together when errors are cross-validated."""

    rows: Rows
    group: str


def design(*, max_num_seqs: int, max_tokens: int, longest: int, capacity: int, block_size: int) -> list[Designed]:
    """Steps of at most max_num_seqs rows and max_tokens tokens, of sequences up to `longest`, of which the pool holds
    `capacity` tokens together; pieces of prompts begin at a block's edge."""
    found = [*_prompts(max_tokens, longest, block_size), *_decodes(max_num_seqs, max_tokens, longest, capacity)]
    found += _mixed(max_num_seqs, max_tokens, longest, capacity, block_size)
    return [item for item in found if sum(start + count for start, count, _, _ in item.rows) <= capacity]


def _sizes(least: int, most: int, factor: float) -> list[int]:
    """From least to most, each about `factor` times the one before, both ends included."""
    sizes, size = [], float(least)
    while size < most:
        sizes.append(round(size))
        size *= factor
    return [*sizes, most] if most >= least else []


def _prompts(max_tokens: int, longest: int, block_size: int) -> list[Designed]:
    most = min(max_tokens, longest)
    whole = [Designed(((0, size, 1, True),), f"prompt {size}") for size in _sizes(8, most, 2.0)]
    starts = [start // block_size * block_size for start in (longest // 8, longest // 3, longest - most)]
    sizes = dict.fromkeys((most, max(1, most // 4)))
    behind = [
        Designed(((start, size, 1, True),), f"piece {size} at {start}")
        for start in dict.fromkeys(starts)
        for size in sizes
        if 0 < start <= longest - size
    ]
    return whole + behind


def _decodes(max_num_seqs: int, max_tokens: int, longest: int, capacity: int) -> list[Designed]:
    found = []
    for batch in _sizes(1, min(max_num_seqs, max_tokens), 2.0):
        most = min(longest, capacity // batch)
        for length in dict.fromkeys(min(most, size) for size in (16, longest // 8, longest // 2, longest)):
            if length >= 2:
                found.append(Designed(((length - 1, 1, 1, False),) * batch, f"decode {batch} of {length}"))
    return found


def _mixed(max_num_seqs: int, max_tokens: int, longest: int, capacity: int, block_size: int) -> list[Designed]:
    found = []
    for batch in dict.fromkeys((max(1, max_num_seqs // 4), max(1, max_num_seqs - 1))):
        room = min(max_tokens - batch, longest) // block_size * block_size
        context = min(longest // 4, max(0, capacity - room) // batch)
        for size in dict.fromkeys((room, room // 4 // block_size * block_size)):
            if size > 0 and context > 1:
                rows = ((context - 1, 1, 1, False),) * batch
                found.append(Designed(((0, size, 1, True), *rows), f"{batch} decode beside {size}"))
                found.append(Designed(((0, size, 0, True), *rows), f"{batch} decode beside {size}"))
    return found
