"""The device functions of paged attention: online softmax over plain and quantized caches, and the merge of splits.

One program holds a tile's queries in all heads of one KV head, [queries * group, head], and one split of its keys. Its
softmax is to base 2: `scale` has log2(e) in it. Scores and sums are float32; products take their factors in the
query's type. A row of scores that are all masked leaves everything as it was: its largest score is -inf, taken as 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from core_engine.kernels.triton.kv_read import (
    block_of_key,
    by_channel,
    codes_tile,
    head_places,
    plain_tile,
    token_numbers,
    with_outliers,
)


@triton.jit
def _queries(
    query, token_0, head_0, count, stride_token, stride_head, element, valid,
    GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """(index in the tile, is one, query [ROWS, head]): the heads of one query stand one below the other."""
    row = tl.arange(0, ROWS)
    index = row // GROUP
    real = index < count
    at = (token_0 + index).to(tl.int64) * stride_token + (head_0 + row % GROUP) * stride_head
    return index, real, tl.load(query + at[:, None] + element[None, :], mask=real[:, None] & valid[None, :], other=0)


@triton.jit
def _visible(position, key, end, start, bits, WINDOW: tl.constexpr, TREE: tl.constexpr):
    """[queries, keys]: keys up to the query and before `end`, in its window, and of new tokens those of its branch."""
    mask = (key[None, :] <= position[:, None]) & (key < end)[None, :]
    if WINDOW:
        mask &= key[None, :] > position[:, None] - WINDOW
    if TREE:
        number = tl.minimum(tl.maximum(key - start, 0), 63).to(tl.int64)
        mask &= (key < start)[None, :] | (((bits[:, None] >> number[None, :]) & 1) != 0)
    return mask


@triton.jit
def _absorb(scores, most, total, acc):
    """(probabilities, largest score, sum, result) after these scores, all relative to the largest one so far."""
    largest = tl.maximum(most, tl.max(scores, 1))
    relative = tl.where(largest == float("-inf"), 0.0, largest)
    chances = tl.exp2(scores - relative[:, None])
    shrink = tl.exp2(most - relative)
    return chances, largest, total * shrink + tl.sum(chances, 1), acc * shrink[:, None]


@triton.jit
def _finish(
    out, workspace, most, total, acc, tile, token_0, head_0, index, real, element, valid, stride_token, stride_head,
    GROUP: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Store the result; or, of several splits, this one's beside the logarithm of its sum, -inf where it is empty."""
    head = head_0 + tl.arange(0, ROWS) % GROUP
    divisor = tl.where(total > 0, total, 1.0)
    result = acc / divisor[:, None]
    mask = real[:, None] & valid[None, :]
    if SPLITS == 1:
        at = (token_0 + index).to(tl.int64) * stride_token + head * stride_head
        tl.store(out + at[:, None] + element[None, :], result.to(out.dtype.element_ty), mask=mask)
    else:
        split = tl.program_id(2)
        vectors = tl.num_programs(0).to(tl.int64) * BLOCK_Q * HEADS * SPLITS
        vector = ((tile.to(tl.int64) * BLOCK_Q + index) * HEADS + head) * SPLITS + split
        tl.store(workspace + (vector * HEAD_DIM)[:, None] + element[None, :], result, mask=mask)
        tl.store(workspace + vectors * HEAD_DIM + vector, most + tl.log2(divisor), mask=real)


@triton.jit
def _own_split(low, high, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """[begin, end) of this program's split of the keys [low, high), in whole tiles of BLOCK_N from `low` on."""
    keys = tl.cdiv(tl.cdiv(tl.maximum(high - low, 0), BLOCK_N), SPLITS) * BLOCK_N
    begin = low + tl.program_id(2) * keys
    return begin, tl.minimum(high, begin + keys)


@triton.jit
def attend_plain(
    query, out, keys, values, workspace, tables, firsts, starts, tile_rows, tile_firsts, tile_counts, tree, scale,
    query_token, query_head, out_token, out_head, stride_block, stride_token, stride_head, stride_table,
    HEAD_DIM: tl.constexpr, PART: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_Q: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr, WINDOW: tl.constexpr, TREE: tl.constexpr, FORMAT: tl.constexpr,
    NATIVE_FP8: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, kv_heads, SPLITS). The last tiles go first: they have the most keys."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    count = tl.load(tile_counts + tile)
    if count == 0:
        return
    row, index_0, head_0 = tl.load(tile_rows + tile), tl.load(tile_firsts + tile), tl.program_id(1) * GROUP
    start, token_0 = tl.load(starts + row), tl.load(firsts + row) + index_0
    element, valid = head_places(HEAD_DIM, 1, PART)
    index, real, q = _queries(query, token_0, head_0, count, query_token, query_head, element, valid, GROUP, ROWS)
    bits = tl.load(tree + token_0 + index, mask=real, other=0) if TREE else index
    position_0 = start + index_0
    position = position_0 + index
    table = tables + row.to(tl.int64) * stride_table
    keys += tl.program_id(1).to(tl.int64) * stride_head
    values += tl.program_id(1).to(tl.int64) * stride_head

    low = tl.maximum(position_0 - WINDOW + 1, 0) // BLOCK_N * BLOCK_N if WINDOW else 0
    begin, end = _own_split(low, position_0 + count, SPLITS, BLOCK_N)
    tiles = tl.cdiv(tl.maximum(end - begin, 0), BLOCK_N)
    # Tiles of keys from `whole` up to `edge` are seen whole by every query: no mask is made for them. A single query
    # has them all in one loop, since filling the pipeline twice costs more than its one row of masks.
    whole, edge = 0, 0
    if BLOCK_Q > 1 and PART == HEAD_DIM:
        if WINDOW:
            whole = tl.minimum(tl.cdiv(tl.maximum(position_0 + count - WINDOW - begin, 0), BLOCK_N), tiles)
        certain = tl.minimum(position_0 + 1, start) if TREE else position_0 + 1
        edge = tl.maximum(tl.minimum(tl.maximum(certain - begin, 0) // BLOCK_N, tiles), whole)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PART], tl.float32)
    if BLOCK_Q > 1 and PART == HEAD_DIM:
        for number in range(whole, edge):
            key = begin + number * BLOCK_N + tl.arange(0, BLOCK_N)
            inside = key >= 0
            block = tl.load(table + key // BLOCK_SIZE).to(tl.int64)
            k = plain_tile(keys, stride_block, stride_token, block, key, inside, element, valid, BLOCK_SIZE, FORMAT,
                           NATIVE_FP8, False, q.dtype)  # fmt: skip
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            chances, most, total, acc = _absorb(scores, most, total, acc)
            v = plain_tile(values, stride_block, stride_token, block, key, inside, element, valid, BLOCK_SIZE, FORMAT,
                           NATIVE_FP8, False, q.dtype)  # fmt: skip
            acc = tl.dot(chances.to(q.dtype), v, acc, input_precision="ieee")
    for number in range(tiles - (edge - whole)):
        shifted = tl.where(number < whole, number, number + edge - whole)
        key = begin + shifted * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = key < end
        block = block_of_key(table, key, inside, BLOCK_SIZE)
        k = plain_tile(keys, stride_block, stride_token, block, key, inside, element, valid, BLOCK_SIZE, FORMAT,
                       NATIVE_FP8, True, q.dtype)  # fmt: skip
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(_visible(position, key, end, start, bits, WINDOW, TREE), scores, float("-inf"))
        chances, most, total, acc = _absorb(scores, most, total, acc)
        v = plain_tile(values, stride_block, stride_token, block, key, inside, element, valid, BLOCK_SIZE, FORMAT,
                       NATIVE_FP8, True, q.dtype)  # fmt: skip
        acc = tl.dot(chances.to(q.dtype), v, acc, input_precision="ieee")
    _finish(out, workspace, most, total, acc, tile, token_0, head_0, index, real, element, valid, out_token, out_head,
            GROUP, HEADS, HEAD_DIM, BLOCK_Q, SPLITS, ROWS)  # fmt: skip


@triton.jit
def _exact_tile(
    open_side, new_side, key, copied, fresh, new_0, head, element, valid, new_token, new_head,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """[keys, head] in DTYPE: `copied` keys from a full-precision block, `fresh` ones from the step's own tokens, of
    which number new_0 + key is the key's."""
    at = ((key % BLOCK_SIZE) * KV_HEADS + head) * HEAD_DIM
    kept = tl.load(open_side + at[:, None] + element[None, :], mask=copied[:, None] & valid[None, :], other=0)
    at_new = (new_0 + key).to(tl.int64) * new_token + head * new_head
    made = tl.load(new_side + at_new[:, None] + element[None, :], mask=fresh[:, None] & valid[None, :], other=0)
    return tl.where(fresh[:, None], made.to(DTYPE), kept.to(DTYPE))


@triton.jit
def attend_quantized(
    query, out, raw, open_blocks, new_keys, new_values, workspace, tables, firsts, starts, slots,
    tile_rows, tile_firsts, tile_counts, tree, scale,
    query_token, query_head, out_token, out_head, block_bytes, stride_slot, stride_copy, stride_side,
    new_token, new_head, stride_table,
    HEAD_DIM: tl.constexpr, PART: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_Q: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
    OWN_N: tl.constexpr, SPLITS: tl.constexpr, WINDOW: tl.constexpr, TREE: tl.constexpr,
    BITS: tl.constexpr, CHANNEL: tl.constexpr, OUTLIERS: tl.constexpr, SINKS: tl.constexpr,
    KEY_BYTES: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, kv_heads, SPLITS). All queries of a tile lie in one block, their own: blocks before it are read as
    bytes, by the splits; it is read in full precision, by the last split; sinks likewise, by the first."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    count = tl.load(tile_counts + tile)
    if count == 0:
        return
    row, index_0, head = tl.load(tile_rows + tile), tl.load(tile_firsts + tile), tl.program_id(1)
    start, row_token = tl.load(starts + row), tl.load(firsts + row)
    head_0, token_0 = head * GROUP, row_token + index_0
    element, valid = head_places(HEAD_DIM, 8 // BITS, PART)
    index, real, q = _queries(query, token_0, head_0, count, query_token, query_head, element, valid, GROUP, ROWS)
    bits = tl.load(tree + token_0 + index, mask=real, other=0) if TREE else index
    position_0 = start + index_0
    position = position_0 + index
    own = position_0 // BLOCK_SIZE * BLOCK_SIZE
    table = tables + row.to(tl.int64) * stride_table
    first_key = tl.maximum(position_0 - WINDOW + 1, 0) if WINDOW else 0

    low = tl.maximum(first_key // BLOCK_N * BLOCK_N, SINKS * BLOCK_SIZE)
    begin, end = _own_split(low, own, SPLITS, BLOCK_N)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, (8 // BITS) * PART], tl.float32)
    query_sum = tl.sum(q.to(tl.float32), 1)  # times a key's minimum: its part of the score
    for key_0 in range(begin, end, BLOCK_N):
        key = key_0 + tl.arange(0, BLOCK_N)
        inside = key < end
        at = block_of_key(table, key, inside, BLOCK_SIZE) * block_bytes
        k = codes_tile(raw, at, key, inside, head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS, PART, q.dtype)
        if CHANNEL:
            group = key_0 + tl.arange(0, BLOCK_N // TOGETHER) * TOGETHER
            there = group < end
            group_at = block_of_key(table, group, there, BLOCK_SIZE) * block_bytes
            k = by_channel(k, raw, group_at, there, head, element, valid, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS,
                           TOGETHER)  # fmt: skip
        elif OUTLIERS:
            step, least = token_numbers(raw, at, key, inside, head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS)
            k = k.to(tl.float32) * step[:, None] + least[:, None]
        if OUTLIERS:
            k = with_outliers(k, raw, at, key, inside, head, element, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS, CHANNEL,
                              OUTLIERS)  # fmt: skip
        scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="ieee")
        if CHANNEL or OUTLIERS:
            scores *= scale
        else:
            step, least = token_numbers(raw, at, key, inside, head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS)
            scores *= (step * scale)[None, :]
            if BITS < 8:
                scores += query_sum[:, None] * (least * scale)[None, :]
        seen = inside[None, :]
        if WINDOW:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        chances, most, total, acc = _absorb(tl.where(seen, scores, float("-inf")), most, total, acc)

        value_at = at + KEY_BYTES
        v = codes_tile(raw, value_at, key, inside, head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS, PART, q.dtype)
        step, least = token_numbers(raw, value_at, key, inside, head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS)
        if OUTLIERS:
            loose = v.to(tl.float32) * step[:, None] + least[:, None]
            v = with_outliers(loose, raw, value_at, key, inside, head, element, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BITS,
                              False, OUTLIERS).to(q.dtype)  # fmt: skip
        else:
            if BITS < 8:
                acc += tl.sum(chances * least[None, :], 1)[:, None]
            chances *= step[None, :]
        acc = tl.dot(chances.to(q.dtype), v, acc, input_precision="ieee")

    open_blocks += tl.load(slots + row).to(tl.int64) * stride_slot
    new_0 = row_token - start
    # Places in full precision: the sinks before the own block, then the own block.
    own_place = own // BLOCK_SIZE
    split = tl.program_id(2)
    sinks = tl.minimum(own_place, SINKS) if split == 0 else 0
    chunks = tl.cdiv(BLOCK_SIZE, OWN_N)
    last = chunks if split == SPLITS - 1 else 0
    for number in range(sinks * chunks + last):
        is_own = number >= sinks * chunks
        place = tl.where(is_own, own_place, number // chunks)
        copy = tl.where(is_own, 0, place + 1)
        key = place * BLOCK_SIZE + (number % chunks) * OWN_N + tl.arange(0, OWN_N)
        until = tl.minimum((place + 1) * BLOCK_SIZE, position_0 + count)
        fresh = (key >= start) & (key < until) & is_own
        copied = (key < until) & (fresh == 0)
        side = open_blocks + copy * stride_copy
        k = _exact_tile(side, new_keys, key, copied, fresh, new_0, head, element, valid, new_token, new_head, KV_HEADS,
                        HEAD_DIM, BLOCK_SIZE, q.dtype)  # fmt: skip
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(_visible(position, key, until, start, bits, WINDOW, TREE), scores, float("-inf"))
        chances, most, total, acc = _absorb(scores, most, total, acc)
        v = _exact_tile(side + stride_side, new_values, key, copied, fresh, new_0, head, element, valid, new_token,
                        new_head, KV_HEADS, HEAD_DIM, BLOCK_SIZE, q.dtype)  # fmt: skip
        acc = tl.dot(chances.to(q.dtype), v, acc, input_precision="ieee")
    _finish(out, workspace, most, total, acc, tile, token_0, head_0, index, real, element, valid, out_token, out_head,
            GROUP, GROUP * KV_HEADS, HEAD_DIM, BLOCK_Q, SPLITS, ROWS)  # fmt: skip


@triton.jit
def merge_splits(
    workspace, out, firsts, tile_rows, tile_firsts, tile_counts, out_token, out_head,
    HEAD_DIM: tl.constexpr, PADDED: tl.constexpr, BLOCK_Q: tl.constexpr, SPLITS: tl.constexpr,
    MERGED: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, heads): the mean of the splits' results, each weighted by its sum. MERGED splits at a time."""
    tile, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    token_0 = tl.load(firsts + tl.load(tile_rows + tile)) + tl.load(tile_firsts + tile)
    element = tl.arange(0, PADDED)
    sums = workspace + tl.num_programs(0).to(tl.int64) * BLOCK_Q * heads * SPLITS * HEAD_DIM
    for index in range(tl.load(tile_counts + tile)):
        vector = ((tile.to(tl.int64) * BLOCK_Q + index) * heads + head) * SPLITS
        most, total = float("-inf"), 0.0
        acc = tl.zeros([PADDED], tl.float32)
        for split_0 in range(0, SPLITS, MERGED):
            split = split_0 + tl.arange(0, MERGED)
            logarithm = tl.load(sums + vector + split, mask=split < SPLITS, other=float("-inf"))
            part = tl.load(
                workspace + ((vector + split) * HEAD_DIM)[:, None] + element[None, :],
                mask=(logarithm > float("-inf"))[:, None] & (element < HEAD_DIM)[None, :],
                other=0,
            )
            largest = tl.maximum(most, tl.max(logarithm, 0))
            relative = tl.where(largest == float("-inf"), 0.0, largest)
            weight = tl.exp2(logarithm - relative)
            shrink = tl.exp2(most - relative)
            total = total * shrink + tl.sum(weight, 0)
            acc = acc * shrink + tl.sum(part * weight[:, None], 0)
            most = largest
        at = (token_0 + index).to(tl.int64) * out_token + head * out_head
        tl.store(out + at + element, (acc / total).to(out.dtype.element_ty), mask=element < HEAD_DIM)
