"""Attention over a paged KV cache in plain torch: the oracle that faster kernels are tested against.

Cache layout of one layer: keys and values [num_blocks + 1, block_size, num_kv_heads, head_dim]. The last block is the
padding block: no request owns it, padding tokens write to it, and unused places of block tables point at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class DecodeGroup:
    """All rows of a step with a single new token.

    token_index [rows]: their places in the flat batch; block_tables [rows, max_blocks], filled up with the padding
    block and, under a window, begun at the first block in it; mask [rows, 1, 1, max_blocks * block_size], true where a
    row may look.
    """

    token_index: torch.Tensor
    block_tables: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True)
class PrefillRow:
    """One row with several new tokens: its flat places [first, last), the blocks it reads [num_blocks].

    num_keys: keys from the start of blocks[0] to the row's own end; it never reads past that.
    """

    first: int
    last: int
    blocks: torch.Tensor
    num_keys: int
    mask: torch.Tensor | None  # [count, num_keys], None when the row begins its sequence and no window cuts it


@dataclass(frozen=True)
class AttentionView:
    """What each row of a step reads in layers of one window."""

    decode: DecodeGroup | None
    prefill: tuple[PrefillRow, ...]


@dataclass(frozen=True)
class AttentionBatch:
    """Where each token of a step writes and what each row reads. slots [num_tokens] = block * block_size + offset.

    views by the layer's window, None for layers without.
    """

    slots: torch.Tensor
    views: Mapping[int | None, AttentionView]


def write_kv(cache: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> None:
    """Store new [num_tokens, num_kv_heads, head_dim] at `slots` of one layer's keys or values.

    index_copy_ refuses a negative slot: it never stands for the end of the cache, as it would when indexing.
    """
    cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, new)


def paged_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, view: AttentionView, scale: float
) -> torch.Tensor:
    """Attend each token to its own sequence up to itself. query and result [num_tokens, num_heads, head_dim]."""
    result = torch.empty_like(query)
    if view.decode is not None:
        result[view.decode.token_index] = _decode(query, keys, values, view.decode, scale)
    for row in view.prefill:
        result[row.first : row.last] = _prefill(query[row.first : row.last], keys, values, row, scale)
    return result


def _decode(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: DecodeGroup, scale: float
) -> torch.Tensor:
    rows, max_blocks = group.block_tables.shape
    _, block_size, num_kv_heads, head_dim = keys.shape
    flat = group.block_tables.flatten()
    shape = (rows, max_blocks * block_size, num_kv_heads, head_dim)
    k = keys.index_select(0, flat).view(shape).transpose(1, 2)
    v = values.index_select(0, flat).view(shape).transpose(1, 2)
    # The query heads of one KV head become its query positions, so that grouped KV is read once and never repeated.
    q = query.index_select(0, group.token_index).view(rows, num_kv_heads, -1, head_dim)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, scale=scale)
    return out.reshape(rows, -1, head_dim)


def _prefill(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, row: PrefillRow, scale: float
) -> torch.Tensor:
    count = row.last - row.first
    k = keys.index_select(0, row.blocks).flatten(0, 1)[: row.num_keys].transpose(0, 1)
    v = values.index_select(0, row.blocks).flatten(0, 1)[: row.num_keys].transpose(0, 1)
    q = query.transpose(0, 1)
    out = F.scaled_dot_product_attention(
        q[None],
        k[None],
        v[None],
        attn_mask=row.mask,
        is_causal=row.mask is None and count > 1,
        scale=scale,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
