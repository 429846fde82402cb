"""Rotation with the KV write, and the quantizing write, in Triton's interpreter against torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from core_engine.kernels.reference import write_kv
from core_engine.kv.format import KVFormat
from core_engine.model.decoder import _rotate
from core_engine.model.rope import RopeSpec, cos_and_sin, inverse_frequencies
from tests.core_engine.kernels.triton.steps import (
    every_form,
    num_blocks,
    plan_rows,
    quantized_cache,
    quantized_rows,
    row_table,
)

kv_write = pytest.importorskip("core_engine.kernels.triton.kv_write", reason="triton is not installed")
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
TOKENS, BLOCK, BLOCKS, EPS = 5, 16, 4, 1e-5
UNTOUCHED = 7.0


def projections(head_dim, heads, kv_heads, dtype):
    torch.manual_seed(0)
    qkv = torch.randn(TOKENS, (heads + 2 * kv_heads) * head_dim).to(dtype)
    positions = torch.tensor([0, 5, 1000, 3, 131_000])
    cos, sin = cos_and_sin(positions, inverse_frequencies(RopeSpec(), head_dim), 1.0)
    norms = [torch.rand(head_dim).to(dtype) + 0.5 for _ in range(2)]
    return qkv, cos, sin, norms


def by_torch(qkv, cos, sin, norms, heads, kv_heads, head_dim):
    """float32 arithmetic, heads rounded before the norm's weight."""
    query, key, value = qkv.view(TOKENS, -1, head_dim).split([heads, kv_heads, kv_heads], dim=1)
    if norms:
        query, key = (
            weight.float() * F.rms_norm(x.float(), (head_dim,), eps=EPS).to(qkv.dtype).float()
            for x, weight in zip((query, key), norms, strict=True)
        )
    turned = [_rotate(x.float(), cos[:, None], sin[:, None]).to(qkv.dtype) for x in (query, key)]
    return [*turned, value]


@pytest.mark.parametrize(
    ("head_dim", "heads", "kv_heads", "normed", "dtype"),
    [
        (64, 9, 3, False, torch.float32), (64, 3, 1, True, torch.float16), (96, 2, 1, True, torch.float32),
        (128, 4, 1, False, torch.float16), (128, 4, 2, True, torch.float32), (256, 2, 2, False, torch.float32),
    ],
)  # fmt: skip
def test_heads_are_normed_rotated_and_written_to_their_slots(head_dim, heads, kv_heads, normed, dtype):
    qkv, cos, sin, norms = projections(head_dim, heads, kv_heads, dtype)
    norms = norms if normed else []
    query = torch.full((TOKENS, heads, head_dim), UNTOUCHED, dtype=dtype)
    cache = torch.full((2, BLOCKS, BLOCK, kv_heads, head_dim), UNTOUCHED, dtype=dtype)
    slots = torch.tensor([17, 0, -1, 63, 5])
    options = {"query_norm": norms[0], "key_norm": norms[1]} if norms else {}
    kv_write.rotate_and_store(qkv, cos, sin, query, *cache, slots=slots, eps=EPS, **options)
    wanted = by_torch(qkv, cos, sin, norms, heads, kv_heads, head_dim)
    kept = torch.tensor([0, 1, 3, 4])
    wanted_cache = torch.full_like(cache, UNTOUCHED)
    for side, new in zip(wanted_cache, wanted[1:], strict=True):
        write_kv(side, new[kept], slots[kept])
    tolerance = 2e-6 if dtype is torch.float32 else 2e-3
    torch.testing.assert_close(query[kept], wanted[0][kept], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(cache, wanted_cache, rtol=tolerance, atol=tolerance)
    assert (query[2] == UNTOUCHED).all()


def test_half_of_cosines_and_no_slots_give_the_same_in_buffers_of_the_step():
    qkv, cos, sin, _ = projections(64, 4, 2, torch.float32)
    query, keys, values = (torch.zeros(TOKENS, heads, 64) for heads in (4, 2, 2))
    kv_write.rotate_and_store(qkv, cos[:, :32].contiguous(), sin[:, :32].contiguous(), query, keys, values)
    for got, wanted in zip((query, keys, values), by_torch(qkv, cos, sin, [], 4, 2, 64), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6)


def test_fp8_rounds_and_saturates_as_torch_does():
    """Every fp8 number, what lies between two of them, and what lies beyond them all."""
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ordered = numbers[numbers.isfinite()].sort().values
    between = (ordered[1:] + ordered[:-1]) / 2
    found = torch.cat([ordered, between, between.nextafter(ordered[1:]), torch.tensor([1e3, -1e9, 448.1, 465.0])])
    values = F.pad(found, (0, -len(found) % 64)).view(-1, 1, 64)
    tokens = len(values)
    qkv = torch.cat([torch.zeros(tokens, 128), values.flatten(1)], dim=1)
    cache = torch.zeros(2, 2, BLOCK, 1, 64, dtype=torch.float8_e4m3fn)
    slots = torch.arange(tokens)
    turn = torch.ones(tokens, 32), torch.zeros(tokens, 32)
    kv_write.rotate_and_store(qkv, *turn, torch.zeros(tokens, 1, 64), *cache, slots=slots)
    wanted = torch.zeros_like(cache[1])
    write_kv(wanted, values, slots)
    assert torch.equal(cache[1].float(), wanted.float())


def quantizing_case(form, head_dim, block_size, kv_heads, dtype=torch.float32):
    """Bytes, sinks and open blocks equal torch's. Numbers are eighths, so that sums are exact in any order."""
    torch.manual_seed(0)
    spans = quantized_rows(block_size)
    rows = plan_rows(spans, block_size)
    cache = quantized_cache(form, rows, block_size, kv_heads, head_dim)
    cache.open.copy_(torch.randint(-64, 65, cache.open.shape) / 8)
    new = (torch.randint(-64, 65, (2, sum(row.count for row in rows), kv_heads, head_dim)) / 8).to(dtype)
    new[:, 1] = 0  # a token without a scale
    new[:, 2] *= 1000
    wanted = quantized_cache(form, rows, block_size, kv_heads, head_dim)
    for ours, theirs in zip(wanted.tensors(), cache.tensors(), strict=True):
        ours.copy_(theirs)
    first = 0
    for row in rows:
        part = new[:, first : first + row.count].float()
        list(wanted)[1].write(row.slot, torch.tensor(row.blocks), row.start, part)
        first += row.count
    longest = max(row.count for row in rows)
    kv_write.quantize_blocks(*new, list(cache)[1], row_table(rows, num_blocks(rows)), longest)
    assert torch.equal(cache.raw, wanted.raw)
    assert torch.equal(cache.open, wanted.open)


@pytest.mark.parametrize("form", every_form(), ids=str)
def test_full_blocks_are_the_very_bytes_of_the_reference(form):
    quantizing_case(form, 64, 16, 2 if form.key_axis == "channel" else 1)


@pytest.mark.parametrize(("head_dim", "block_size"), [(96, 32), (128, 64), (256, 16)])
@pytest.mark.parametrize("form", [KVFormat("int8"), KVFormat("int4"), KVFormat("int4", "token", "outliers")], ids=str)
def test_other_sizes_of_heads_and_blocks(form, head_dim, block_size):
    quantizing_case(form, head_dim, block_size, 1, torch.float16)


@pytest.mark.parametrize("form", [KVFormat("int8"), KVFormat("int4"), KVFormat("int2")], ids=str)
def test_numbers_of_any_size_are_rounded_alike(form):
    """Random float32 numbers, a group of one value, and numbers that fp16 scales and minima can't hold."""
    torch.manual_seed(1)
    rows = plan_rows([(0, 32)], 16)
    caches = [quantized_cache(form, rows, 16, 1, 64) for _ in range(2)]
    for tensor, same in zip(caches[0].tensors(), caches[1].tensors(), strict=True):
        same.copy_(tensor)
    new = torch.randn(2, 32, 1, 64)
    new[:, 3], new[:, 4], new[:, 5] = 2.5, 1e9 * new[:, 4], 1e-7 * new[:, 5]
    next(iter(caches[0])).write(0, torch.tensor(rows[0].blocks), 0, new)
    kv_write.quantize_blocks(*new, next(iter(caches[1])), row_table(rows, 2), 32)
    assert torch.equal(caches[0].raw, caches[1].raw)


def test_a_block_too_large_for_a_program_is_refused():
    rows = plan_rows([(0, 1)], 512)
    layer = next(iter(quantized_cache(KVFormat("int8"), rows, 512, 1, 128)))
    with pytest.raises(ValueError, match="up to 256 tokens"):
        kv_write.quantize_blocks(torch.zeros(1, 1, 128), torch.zeros(1, 1, 128), layer, row_table(rows, 1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("form", every_form(), ids=str)
def test_every_form_of_every_size(form):
    for head_dim in (64, 96, 128, 256):
        for block_size in (16, 32, 64):
            quantizing_case(form, head_dim, block_size, 2)
