"""A quantized block: its bytes, what it loses, and the formats' claims on tensors made for them (faults 26, 27)."""

from __future__ import annotations

import pytest
import torch

from core_engine.kv.block import BlockLayout
from ledger.kv_blocks import BlockFormat

FORMATS = [BlockFormat("int8")] + [
    BlockFormat(name, axis, protect)
    for name in ("int4", "int2")
    for axis in ("channel", "token")
    for protect in ("none", "outliers")
]
SIZES = [(1, 2, 8), (5, 1, 12), (16, 3, 64), (64, 2, 16)]


def made(block_size: int, kv_heads: int, head_dim: int, blocks: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(block_size)
    shape = (blocks, block_size, kv_heads, head_dim)
    return torch.randn(shape, generator=generator) * 3, torch.randn(shape, generator=generator) + 1


def through(format: BlockFormat, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    layout = BlockLayout.of(format, *keys.shape[1:])
    return layout.dequantize(layout.quantize(keys, values))


def attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """query [queries, head_dim] over one head's keys and values of all blocks in turn."""
    keys, values = keys.flatten(0, 1)[:, 0], values.flatten(0, 1)[:, 0]
    return torch.softmax(query @ keys.T * keys.shape[-1] ** -0.5, dim=-1) @ values


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_bytes_are_the_ledgers_and_an_element_is_at_most_half_a_step_away(format, sizes):
    keys, values = made(*sizes)
    layout = BlockLayout.of(format, *sizes)
    raw = layout.quantize(keys, values)
    assert raw.shape == (len(keys), layout.block_bytes)
    assert layout.block_bytes == sum(format.side_bytes(*sizes, keys=side) for side in (True, False))
    for side, x, found in zip((layout.keys, layout.values), (keys, values), layout.dequantize(raw), strict=True):
        dim = 1 if side.per_channel else -1
        reach = x.abs().amax(dim, keepdim=True)
        step = (
            reach / 127
            if format.name == "int8"
            else (x.amax(dim, keepdim=True) - x.amin(dim, keepdim=True)) / (2**format.bits - 1)
        )
        assert ((found - x).abs() <= step * 0.5 + reach * 2**-9).all()


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_block_does_not_depend_on_those_beside_it(format):
    keys, values = made(16, 3, 64)
    layout = BlockLayout.of(format, 16, 3, 64)
    together = layout.quantize(keys, values)
    alone = [layout.quantize(keys[i : i + 1], values[i : i + 1]) for i in range(len(keys))]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_constants_zeros_and_huge_numbers_come_back(format):
    for number in (0.0, 1.5, -3.0, 1e-2, 6e4):
        keys = torch.full((2, 4, 2, 8), number)
        for found in through(format, keys, -keys):
            assert torch.isfinite(found).all()
            assert (found.abs() - abs(number)).abs().max() <= abs(number) * 0.01 + 1e-7
    spread = torch.linspace(-1e6, 1e6, 64).view(1, 4, 2, 8)  # wider than a half holds
    assert all(torch.isfinite(found).all() for found in through(format, spread, spread))


def test_the_codes_lie_as_the_layout_says():
    x = torch.arange(8.0).view(1, 1, 1, 8) * 15 / 7
    raw = BlockLayout.of(BlockFormat("int4", "token"), 1, 1, 8).keys.quantize(x)[0]
    codes = [round(i * 15 / 7) for i in range(8)]
    assert raw[:4].tolist() == [codes[i] | codes[i + 4] << 4 for i in range(4)]
    assert raw[4:8].view(torch.float16).tolist() == [1.0, 0.0]  # scale, minimum
    raw = BlockLayout.of(BlockFormat("int2", "token"), 1, 1, 8).keys.quantize(torch.arange(8.0).view(1, 1, 1, 8))[0]
    codes = [round(i / 7 * 3) for i in range(8)]
    assert raw[:2].tolist() == [sum(codes[i + 2 * part] << 2 * part for part in range(4)) for i in range(2)]
    raw = BlockLayout.of(BlockFormat("int8"), 1, 1, 2).values.quantize(torch.tensor([[[[254.0, -2.0]]]]))[0]
    assert raw[:2].view(torch.int8).tolist() == [127, -1] and raw[2:].view(torch.float16).tolist() == [2.0]


def channel_of_fifty() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys of which one channel is fifty times the others, with values and queries."""
    generator = torch.Generator().manual_seed(3)
    keys = torch.randn(8, 16, 1, 64, generator=generator)
    keys[..., 7] = 50 + keys[..., 7]
    values = torch.randn(8, 16, 1, 64, generator=generator)
    return keys, values, torch.randn(32, 64, generator=generator)


def attention_error(format: BlockFormat) -> float:
    """Of attention over keys with the wide channel, relative to its result; values are exact."""
    keys, values, query = channel_of_fifty()
    exact = attention(query, keys, values)
    found = attention(query, through(format, keys, values)[0], values)
    return ((found - exact).norm() / exact.norm()).item()


def test_a_key_channel_of_fifty_costs_per_channel_keys_little_and_per_token_keys_much():
    """Stated bounds: int8 20 %, int4 per channel 10 %; per token the wide channel takes the range of all the others."""
    assert attention_error(BlockFormat("int8")) < 0.20
    assert attention_error(BlockFormat("int4", "channel")) < 0.10
    assert attention_error(BlockFormat("int4", "token")) > 3 * attention_error(BlockFormat("int4", "channel"))


def test_outliers_kept_apart_save_two_bits():
    """Rare large elements widen every group they are in: plain int2 loses the rest, with them apart it does not."""
    generator = torch.Generator().manual_seed(5)
    keys, values = torch.randn(2, 8, 16, 1, 64, generator=generator)
    rare = torch.rand(keys.shape, generator=generator) < 0.02
    keys, values = torch.where(rare, keys * 12, keys), torch.where(rare, values * 12, values)
    errors = {}
    for protect in ("none", "outliers"):
        found = through(BlockFormat("int2", "channel", protect), keys, values)
        errors[protect] = [((f - x).norm() / x.norm()).item() for f, x in zip(found, (keys, values), strict=True)]
    assert all(apart < 0.8 * plain for apart, plain in zip(errors["outliers"], errors["none"], strict=True)), errors
