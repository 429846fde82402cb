"""Paged attention in Triton's interpreter against the torch oracles: formats, shapes, windows, splits, trees."""

from __future__ import annotations

import itertools

import pytest
import torch

from core_engine.executor.batch import build_batch
from core_engine.kernels.reference import naive_attention, paged_attention
from core_engine.kv.attention import quantized_attention
from core_engine.kv.format import KVFormat
from tests.core_engine.kernels.triton.steps import (
    PLAIN_ROWS,
    every_form,
    num_blocks,
    plan_rows,
    quantized_cache,
    quantized_rows,
    row_table,
    tiles_of,
)

attention = pytest.importorskip("core_engine.kernels.triton.attention", reason="triton is not installed")
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # the interpreter's numpy on inf - inf, log 0, ...
UNTOUCHED = 7.0
NEAR = {torch.float32: 2e-5, torch.float16: 4e-3}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}


def near(out, wanted):
    assert not out.isnan().any()
    tolerance = NEAR[out.dtype]
    torch.testing.assert_close(out.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def launch(query, layer, rows, padding_block, block_q, block_end=None, splits=1, **options):
    """What the kernel makes of it; padding tiles must leave the tokens behind the last row alone."""
    padded = torch.cat([query, query.new_full((2, *query.shape[1:]), UNTOUCHED)])
    out = torch.full_like(padded, UNTOUCHED)
    tiles = tiles_of(rows, block_q, block_end)
    floats = attention.workspace_floats(len(tiles.rows), block_q, *query.shape[1:], splits)
    workspace = torch.full((floats,), torch.nan) if splits > 1 else None
    table = row_table(rows, padding_block)
    scale = query.shape[-1] ** -0.5
    attention.attend(padded, out, layer, table, tiles, scale=scale, splits=splits, workspace=workspace, **options)
    assert (out[len(query) :] == UNTOUCHED).all()
    return out[: len(query)]


def plain_case(head_dim, group, block_size, window, form, splits, kv_heads=1, dtype=torch.float32, spans=PLAIN_ROWS):
    torch.manual_seed(0)
    rows = plan_rows(spans, block_size)
    padding = num_blocks(rows)
    cache = torch.randn(2, padding + 1, block_size, kv_heads, head_dim).to(DTYPES[form])
    cache[:, padding] = torch.tensor(torch.nan).to(cache.dtype)
    query = torch.randn(sum(row.count for row in rows), kv_heads * group, head_dim, dtype=dtype)
    batch = build_batch(rows, block_size, torch.device("cpu"), padding_block=padding, windows=[window])
    clean = cache.float().nan_to_num(0.0)
    wanted = paged_attention(query.float(), *clean, batch.attention.views[window], head_dim**-0.5)
    block_q = attention.block_q_for(max(row.count for row in rows), group, block_size, False)
    near(launch(query, tuple(cache), rows, padding, min(block_q, 8), splits=splits, window=window), wanted)


def quantized_case(head_dim, group, block_size, window, form, splits, kv_heads=1, dtype=torch.float32, spans=None):
    torch.manual_seed(0)
    rows = plan_rows(spans or quantized_rows(block_size), block_size)
    cache = quantized_cache(form, rows, block_size, kv_heads, head_dim)
    layer = list(cache)[1]
    tokens = sum(row.count for row in rows)
    query = torch.randn(tokens, kv_heads * group, head_dim, dtype=dtype)
    key, value = torch.randn(2, tokens, kv_heads, head_dim, dtype=dtype)
    wanted = quantized_attention(query.float(), key, value, layer, rows, window, head_dim**-0.5)
    block_q = attention.block_q_for(block_size, group, block_size, True)
    got = launch(
        query, layer, rows, num_blocks(rows), block_q, block_size, splits=splits, window=window, new=(key, value)
    )
    near(got, wanted)


# Head size, group, block size, window, format, splits: the values in many pairs. Splits take the interpreter longest,
# a head and a query at a time, so that few of those have many heads.
PLAIN = [
    (64, 1, 16, None, "fp32", 1), (64, 3, 32, 20, "fp16", 3), (64, 8, 64, None, "fp8", 1), (96, 2, 16, 20, "fp8", 3),
    (96, 4, 64, 33, "fp32", 1), (96, 8, 32, None, "fp16", 1), (128, 1, 64, 20, "fp16", 3),
    (128, 4, 32, None, "fp8", 2), (128, 7, 16, 33, "fp16", 1), (256, 2, 64, 1, "fp16", 3),
    (256, 5, 32, 33, "fp8", 1), (256, 6, 16, 20, "fp32", 1), (64, 1, 32, None, "fp32", 8), (64, 2, 1, 20, "fp32", 2),
    (64, 2, 24, None, "fp16", 1),
]  # fmt: skip


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_ragged_rows_over_a_plain_cache(case):
    plain_case(*case)


def test_queries_that_see_no_key_of_a_tile_which_others_see():
    plain_case(64, 1, 16, 4, "fp32", 1, spans=[(30, 8)])


@pytest.mark.parametrize("form", ["fp16", "fp8"])
def test_half_precision_queries(form):
    plain_case(64, 2, 16, 40, form, 2, kv_heads=2, dtype=torch.float16, spans=[(45, 5), (90, 1)])


QUANTIZED = [
    (64, 1, 16, None, 1), (96, 4, 32, 30, 1), (128, 3, 16, None, 2), (64, 1, 16, 70, 2), (64, 4, 16, None, 1),
    (96, 1, 16, 30, 3), (128, 1, 32, None, 1), (64, 2, 64, 70, 1), (64, 3, 16, None, 1), (96, 1, 16, 30, 2),
    (128, 1, 16, None, 2), (64, 3, 32, 70, 1), (64, 1, 64, None, 1),
]  # fmt: skip


@pytest.mark.parametrize(("form", "case"), list(zip(every_form(), QUANTIZED, strict=True)), ids=str)
def test_ragged_rows_over_quantized_blocks(form, case):
    head_dim, group, block_size, window, splits = case
    quantized_case(head_dim, group, block_size, window, form, splits)


@pytest.mark.parametrize("form", [KVFormat("int8"), KVFormat("int4"), KVFormat("int4", "token")], ids=str)
def test_half_precision_queries_over_quantized_blocks(form):
    quantized_case(64, 1, 16, 90, form, 2, kv_heads=2, dtype=torch.float16, spans=[(127, 1), (130, 2)])


@pytest.mark.parametrize("splits", [1, 4])
def test_a_tree_sees_its_branch_and_all_before(splits):
    torch.manual_seed(0)
    rows = plan_rows([(40, 6), (0, 3)], 16)
    padding = num_blocks(rows)
    keys, values = torch.randn(2, padding + 1, 16, 1, 64)
    query = torch.randn(9, 2, 64)
    parents = [-1, 0, 0, 1, 2, 3, -1, 0, 0]  # of the row's tokens, by number
    bits = []
    for token, parent in enumerate(parents):
        row_first = 0 if token < 6 else 6
        bits.append(1 << (token - row_first) | (bits[row_first + parent] if parent >= 0 else 0))
    tree = torch.tensor([*bits, 0, 0], dtype=torch.int64)
    out = launch(query, (keys, values), rows, padding, 8, splits=splits, tree=tree)
    first = 0
    for row in rows:
        blocks = torch.tensor(row.blocks)
        k, v = (side[blocks].flatten(0, 1)[: row.end].transpose(0, 1) for side in (keys, values))
        for number in range(row.count):
            new = [bool(bits[first + number] >> j & 1) for j in range(row.count)]
            mask = torch.tensor([True] * row.start + new)
            wanted = naive_attention(query[first + number][None], k, v, mask, 64**-0.5)[0]
            near(out[first + number], wanted)
        first += row.count


def test_queries_and_keys_that_are_parts_of_wider_tensors():
    torch.manual_seed(0)
    rows = plan_rows([(20, 1), (0, 5)], 16)
    padding = num_blocks(rows)
    cache = torch.randn(padding + 1, 2, 16, 2, 64)  # keys and values of a block beside each other
    wide = torch.randn(6, 8, 64)
    batch = build_batch(rows, 16, torch.device("cpu"), padding_block=padding)
    keys, values = cache[:, 0], cache[:, 1]
    wanted = paged_attention(wide[:, 2:6], keys, values, batch.attention.views[None], 0.125)
    out = torch.zeros(6, 6, 64)
    attention.attend(
        wide[:, 2:6], out[:, 1:5], (keys, values), row_table(rows, padding), tiles_of(rows, 4), scale=0.125
    )
    near(out[:, 1:5], wanted)
    assert not out[:, 0].any() and not out[:, 5].any()


@pytest.mark.parametrize(
    ("tiles", "kv_heads", "longest", "splits"),
    [
        (1, 8, 131_072, 64),  # 528 programs wanted, 8 there
        (1, 8, 8192, 32),  # no split under 256 keys
        (1, 8, 200, 1),
        (16, 8, 8192, 4),
        (32, 8, 8192, 2),  # 256 programs: a few processors have one only
        (33, 8, 8192, 1),  # two each
        (256, 8, 8192, 1),
    ],
)
def test_keys_are_split_where_programs_do_not_fill_the_device(tiles, kv_heads, longest, splits):
    assert attention.choose_splits(tiles, kv_heads, longest, 132, 16) == splits


@pytest.mark.parametrize(
    ("count", "group", "block_size", "quantized", "block_q"),
    [(1, 4, 16, False, 1), (500, 4, 16, False, 32), (500, 3, 16, False, 32), (500, 7, 16, False, 16),
     (500, 4, 16, True, 16), (5, 4, 16, True, 8), (500, 1, 64, True, 64), (500, 200, 16, False, 1)],
)  # fmt: skip
def test_a_tile_fills_a_program_and_no_more(count, group, block_size, quantized, block_q):
    assert attention.block_q_for(count, group, block_size, quantized) == block_q


def test_what_a_kernel_would_misread_is_refused():
    rows = plan_rows([(0, 1)], 16)
    query = torch.zeros(1, 1, 64)
    keys = torch.zeros(2, 16, 1, 64)
    table, tiles = row_table(rows, 1), tiles_of(rows, 1)
    with pytest.raises(ValueError, match="int64"):
        attention.attend(query, query, (keys, keys), table, tiles, scale=1.0, tree=torch.zeros(1))
    with pytest.raises(ValueError, match="strides"):
        attention.attend(query, query, (keys, keys.transpose(0, 1)), table, tiles, scale=1.0)
    with pytest.raises(ValueError, match="elements of a head"):
        attention.attend(query.transpose(1, 2), query, (keys, keys), table, tiles, scale=1.0)
    layer = next(iter(quantized_cache(KVFormat("int8"), rows, 16, 1, 64)))
    with pytest.raises(ValueError, match="new"):
        attention.attend(query, query, layer, table, tiles, scale=1.0)


# Splits are merged by a program for every query and head, which the interpreter runs one after another: few queries.


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp32", "fp16", "fp8"])
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_every_plain_case(form, head_dim):
    for group, block_size, window, splits in itertools.product(range(1, 9), (16, 32, 64), (None, 20), (1, 3, 8)):
        spans = PLAIN_ROWS if splits == 1 else [(45, 2), (90, 1)]
        plain_case(head_dim, group, block_size, window, form, splits, spans=spans)


@pytest.mark.slow
@pytest.mark.parametrize("form", every_form(), ids=str)
def test_every_quantized_case(form):
    for head_dim, group, block_size, window, splits in itertools.product(
        (64, 96, 128, 256), (1, 3, 8), (16, 32, 64), (None, 30), (1, 3)
    ):
        spans = None if splits == 1 else [(64, 3), (127, 1)]
        quantized_case(head_dim, group, block_size, window, form, splits, spans=spans)
