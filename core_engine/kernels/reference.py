"""Attention over a paged KV cache in plain torch: the oracle that faster kernels are tested against.

Cache layout of one layer: keys and values [num_blocks + 1, block_size, num_kv_heads, head_dim]. The last block is the
padding block: no request owns it, padding tokens write to it, and unused places of block tables point at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core_engine.plan import Row

MOST_FP8 = 448.0  # of float8_e4m3fn


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

    views by the layer's window, None for layers without. rows: what slots and views were made from, with padding.
    """

    slots: torch.Tensor
    views: Mapping[int | None, AttentionView]
    rows: tuple[Row, ...] = ()


def write_kv(cache: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> None:
    """Store new [num_tokens, num_kv_heads, head_dim] at `slots` of one layer's keys or values.

    index_copy_ refuses a negative slot: it never stands for the end of the cache, as it would when indexing.
    Elements are cast to the cache's format.
    """
    if cache.dtype is torch.float8_e4m3fn:  # copied as bytes, for want of an operator; beyond its range it has only NaN
        new = new.clamp(-MOST_FP8, MOST_FP8).to(cache.dtype).view(torch.uint8)
        cache = cache.view(torch.uint8)
    cache.view(-1, *cache.shape[2:]).index_copy_(0, slots, new.to(cache.dtype))


def _gathered(side: torch.Tensor, blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The blocks [len(blocks), block_size, num_kv_heads, head_dim] of one layer's keys or values, in `dtype`."""
    if side.dtype is torch.float8_e4m3fn:
        return side.view(torch.uint8).index_select(0, blocks).view(side.dtype).to(dtype)
    return side.index_select(0, blocks).to(dtype)


def paged_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    view: AttentionView,
    scale: float,
    *,
    flash: bool = True,
) -> torch.Tensor:
    """Attend each token to its own sequence up to itself. query and result [num_tokens, num_heads, head_dim].

    Keys and values of another format than query's are cast to it as they are gathered.

    flash: scores are never stored whole; else a prompt's [num_heads, queries, keys] are, and those of all single
    tokens together.
    """
    result = torch.empty_like(query)
    if view.decode is not None:
        result[view.decode.token_index] = _decode(query, keys, values, view.decode, scale, flash)
    for row in view.prefill:
        result[row.first : row.last] = _prefill(query[row.first : row.last], keys, values, row, scale, flash)
    return result


def _decode(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: DecodeGroup, scale: float, flash: bool
) -> torch.Tensor:
    rows, max_blocks = group.block_tables.shape
    _, block_size, num_kv_heads, head_dim = keys.shape
    flat = group.block_tables.flatten()
    shape = (rows, max_blocks * block_size, num_kv_heads, head_dim)
    k = _gathered(keys, flat, query.dtype).view(shape).transpose(1, 2)
    v = _gathered(values, flat, query.dtype).view(shape).transpose(1, 2)
    # The query heads of one KV head become its query positions, so that grouped KV is read once and never repeated.
    q = query.index_select(0, group.token_index).view(rows, num_kv_heads, -1, head_dim)
    if flash:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, scale=scale)
    else:
        out = naive_attention(q, k, v, group.mask, scale)
    return out.reshape(rows, -1, head_dim)


def _prefill(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, row: PrefillRow, scale: float, flash: bool
) -> torch.Tensor:
    count = row.last - row.first
    k = _gathered(keys, row.blocks, query.dtype).flatten(0, 1)[: row.num_keys].transpose(0, 1)
    v = _gathered(values, row.blocks, query.dtype).flatten(0, 1)[: row.num_keys].transpose(0, 1)
    q = query.transpose(0, 1)
    if not flash:
        mask = (
            torch.ones(count, row.num_keys, dtype=torch.bool, device=q.device).tril() if row.mask is None else row.mask
        )
        # As in _decode: the query heads of one KV head stand one below the other.
        grouped = q.reshape(k.shape[0], -1, q.shape[-1])
        return (
            naive_attention(grouped, k, v, mask.repeat(grouped.shape[1] // count, 1), scale)
            .view(q.shape)
            .transpose(0, 1)
        )
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


def naive_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention as it is written down: all scores in float32, softmax over them, product with the values.

    q [..., queries, head_dim], k and v [..., keys, head_dim], mask broadcast to the scores [..., queries, keys].
    """
    scores = (q @ k.transpose(-1, -2)).float().mul_(scale).masked_fill_(~mask, float("-inf"))
    scores = torch.softmax(scores, dim=-1)
    return scores.to(v.dtype) @ v
