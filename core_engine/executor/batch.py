"""From a plan's rows to the index tensors that the decoder and the attention kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core_engine.kernels.reference import AttentionBatch, DecodeGroup, PrefillRow
from core_engine.plan import Row


@dataclass(frozen=True)
class InputBatch:
    """Flat inputs of one step: token_ids and positions [num_tokens], and where attention writes and reads."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    attention: AttentionBatch


def build_batch(rows: Sequence[Row], block_size: int, device: torch.device) -> InputBatch:
    """Lay the rows one after another without padding."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    decode_rows: list[tuple[int, Row]] = []
    prefill: list[PrefillRow] = []
    for row in rows:
        first = len(tokens)
        tokens.extend(row.tokens)
        positions.extend(range(row.start, row.end))
        slots.extend(row.blocks[p // block_size] * block_size + p % block_size for p in range(row.start, row.end))
        if row.count == 1:
            decode_rows.append((first, row))
        else:
            prefill.append(_prefill_row(row, first, block_size, device))
    return InputBatch(
        token_ids=torch.tensor(tokens, device=device),
        positions=torch.tensor(positions, device=device),
        attention=AttentionBatch(
            slots=torch.tensor(slots, device=device),
            decode=_decode_group(decode_rows, block_size, device) if decode_rows else None,
            prefill=tuple(prefill),
        ),
    )


def _prefill_row(row: Row, first: int, block_size: int, device: torch.device) -> PrefillRow:
    used = -(-row.end // block_size)
    mask = None
    if row.start:
        mask = torch.ones(row.count, row.end, dtype=torch.bool, device=device).tril(diagonal=row.start)
    blocks = torch.tensor(row.blocks[:used], device=device)
    return PrefillRow(first, first + row.count, blocks, row.start, mask)


def _decode_group(decode_rows: list[tuple[int, Row]], block_size: int, device: torch.device) -> DecodeGroup:
    used = [-(-row.end // block_size) for _, row in decode_rows]
    width = max(used)
    tables = [list(row.blocks[:n]) + [0] * (width - n) for (_, row), n in zip(decode_rows, used, strict=True)]
    lengths = torch.tensor([row.end for _, row in decode_rows], device=device)
    mask = torch.arange(width * block_size, device=device)[None, :] < lengths[:, None]
    return DecodeGroup(
        token_index=torch.tensor([first for first, _ in decode_rows], device=device),
        block_tables=torch.tensor(tables, device=device),
        mask=mask[:, None, None, :],
    )
