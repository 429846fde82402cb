"""Where the rows of a step lie on the device: what attention and KV kernels read. Knows no requests and no triton."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowTable:
    """int32 tensors, one number a row unless said otherwise.

    first: flat place of the row's first token in the step; count: its tokens, 0 for a row that only pads a captured
    graph; start: position of its first token in its sequence; slots: its slot of a quantized cache. tables
    [rows, max_blocks]: its blocks, filled up with the padding block.
    """

    first: torch.Tensor
    count: torch.Tensor
    start: torch.Tensor
    slots: torch.Tensor
    tables: torch.Tensor


@dataclass(frozen=True)
class Tiles:
    """Queries of one row that one program handles. int32 [tiles]: the row, the place within it of the tile's first
    query, and how many there are, at most block_q.

    Where KV is quantized no tile goes past a KV block's end, so that its queries share their own block.
    """

    rows: torch.Tensor
    firsts: torch.Tensor
    counts: torch.Tensor
    block_q: int
