"""Attention over quantized blocks in plain torch, row by row: the oracle that compiled kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from core_engine.kernels.reference import naive_attention
from core_engine.kv.cache import QuantizedLayer
from core_engine.plan import Row


def quantized_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: QuantizedLayer,
    rows: Sequence[Row],
    window: int | None,
    scale: float,
    *,
    flash: bool = True,
) -> torch.Tensor:
    """Keep key and value [num_tokens, kv_heads, head_dim] and attend each token to its own sequence up to itself.

    query and result [num_tokens, num_heads, head_dim]. Blocks are read back for one row and layer at a time.
    """
    result, first = torch.empty_like(query), 0
    for row in rows:
        part = slice(first, first + row.count)
        blocks = torch.tensor(row.blocks, device=query.device)
        own = layer.write(row.slot, blocks, row.start, torch.stack([key[part], value[part]]).float())
        result[part] = _attend(query[part], own, layer, row, blocks, window, scale, flash)
        first += row.count
    return result


def _attend(
    query: torch.Tensor,
    own: torch.Tensor,
    layer: QuantizedLayer,
    row: Row,
    blocks: torch.Tensor,
    window: int | None,
    scale: float,
    flash: bool,
) -> torch.Tensor:
    size = layer.block_size
    begin = 0 if window is None else max(0, row.start - window + 1) // size
    first, last = row.start // size, (row.end - 1) // size  # own blocks of the first and the last query
    keys, values = (
        part.to(query.dtype).transpose(0, 1)
        for part in torch.cat([layer.before(row.slot, blocks, begin, last), own], 1)
    )
    before = torch.arange(begin * size, last * size, device=query.device)
    place = torch.cat([before, torch.arange(first * size, row.end, device=query.device)])
    exact = torch.arange(len(place), device=query.device) >= len(before)
    position = torch.arange(row.start, row.end, device=query.device)[:, None]
    mask = (place <= position) & (exact == (place // size == position // size))
    if window is not None:
        mask &= place > position - window
    q = query.transpose(0, 1)
    if flash:
        out = F.scaled_dot_product_attention(
            q[None], keys[None], values[None], attn_mask=mask, scale=scale, enable_gqa=True
        )[0]
    else:
        grouped = q.reshape(len(keys), -1, q.shape[-1])
        out = naive_attention(grouped, keys, values, mask.repeat(grouped.shape[1] // row.count, 1), scale).view(q.shape)
    return out.transpose(0, 1)
