"""From a plan's rows to the index tensors that the decoder and the attention kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core_engine.kernels.reference import AttentionBatch, AttentionView, DecodeGroup, PrefillRow
from core_engine.plan import Row

PADDING = "padding"


@dataclass(frozen=True)
class InputBatch:
    """Flat inputs of one step: token_ids and positions [num_tokens], and where attention writes and reads."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    attention: AttentionBatch


def build_batch(
    rows: Sequence[Row],
    block_size: int,
    device: torch.device,
    *,
    padding_block: int,
    windows: Sequence[int | None] = (None,),
    pad_to: int = 1,
) -> InputBatch:
    """Lay the rows one after another, and after them padding tokens up to a multiple of `pad_to`.

    A padding token is a row of its own whose only block is `padding_block`: it writes to no block of a request.
    windows: those of the decoder's layers.
    """
    missing = -sum(row.count for row in rows) % pad_to
    rows = [*rows, *[Row(PADDING, 0, (0,), (padding_block,), is_prefill=False)] * missing]
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    decode_rows: list[tuple[int, Row]] = []
    prefill_rows: list[tuple[int, Row]] = []
    for row in rows:
        (decode_rows if row.count == 1 else prefill_rows).append((len(tokens), row))
        tokens.extend(row.tokens)
        positions.extend(range(row.start, row.end))
        slots.extend(row.blocks[p // block_size] * block_size + p % block_size for p in range(row.start, row.end))
    longest = max((row.end for row in rows), default=0)
    views: dict[int | None, AttentionView] = {}
    for window in set(windows):
        acting = None if window is None or window >= longest else window  # else it cuts nothing from these rows
        if acting not in views:
            views[acting] = AttentionView(
                decode=_decode_group(decode_rows, acting, block_size, padding_block, device) if decode_rows else None,
                prefill=tuple(_prefill_row(row, first, acting, block_size, device) for first, row in prefill_rows),
            )
        views[window] = views[acting]
    return InputBatch(
        token_ids=torch.tensor(tokens, device=device),
        positions=torch.tensor(positions, device=device),
        attention=AttentionBatch(slots=torch.tensor(slots, device=device), views=views, rows=tuple(rows)),
    )


def _first_block(position: int, window: int | None, block_size: int) -> int:
    """The first block that the token at `position` looks into."""
    return 0 if window is None else max(0, position - window + 1) // block_size


def _prefill_row(row: Row, first: int, window: int | None, block_size: int, device: torch.device) -> PrefillRow:
    begin, used = _first_block(row.start, window, block_size), -(-row.end // block_size)
    num_keys = row.end - begin * block_size
    mask = None
    if row.start or (window is not None and row.end > window):
        offset = row.start - begin * block_size  # the key of the first query's own position
        mask = torch.ones(row.count, num_keys, dtype=torch.bool, device=device).tril(diagonal=offset)
        if window is not None:
            mask = mask.triu(diagonal=offset - window + 1)
    blocks = torch.tensor(row.blocks[begin:used], device=device)
    return PrefillRow(first, first + row.count, blocks, num_keys, mask)


def _decode_group(
    decode_rows: list[tuple[int, Row]], window: int | None, block_size: int, padding_block: int, device: torch.device
) -> DecodeGroup:
    begins = [_first_block(row.start, window, block_size) for _, row in decode_rows]
    read = [row.blocks[at : -(-row.end // block_size)] for (_, row), at in zip(decode_rows, begins, strict=True)]
    width = max(map(len, read))
    tables = [[*blocks, *[padding_block] * (width - len(blocks))] for blocks in read]
    ends = torch.tensor([row.end for _, row in decode_rows], device=device)[:, None]
    positions = torch.arange(width * block_size, device=device)[None, :]
    if window is None:
        mask = positions < ends
    else:
        positions = positions + torch.tensor(begins, device=device)[:, None] * block_size
        mask = (positions < ends) & (positions >= ends - window)
    return DecodeGroup(
        token_index=torch.tensor([first for first, _ in decode_rows], device=device),
        block_tables=torch.tensor(tables, device=device),
        mask=mask[:, None, None, :],
    )
