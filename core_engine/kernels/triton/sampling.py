"""Choosing tokens on the device: steps 4-7 of core_engine/sampling.py and its draw, for all rows in one launch.

One program a row, no sort. Every filter keeps what is at or above a threshold, so a row's choice is a threshold, the
number of ids equal to it that stay, and a draw. Thresholds are found by bisection over the bits of float32 logits,
ordered as integers, so top_k with all its ties is exact and so is the one id where top_p stops.

Mostly a few candidates are enough. The first look at a row keeps the highest logit of each of BLOCK lanes; the
HEAD-th (or top_k-th) highest of these is a logit that at least so many ids reach, and seldom many more. What reaches it
is written down in the order of ids, with what weighs less added up beside it, and everything else happens in registers,
in float64. Where that is not enough (more than ROOM candidates, a top_p that they do not fill, a top_k beyond them, a
row without filters) the same is done by reading the row again for each step of the bisection: up to 70 times instead of
3, for distributions that are nearly flat.

Against the float64 definition. min_p compares logits with max + T log(min_p) in float64: the same ids unless a
probability is within 1e-13 of min_p. top_k: the same ids. Weights read from the row are float32, of candidates float64:
a sum of the first is within ERROR of itself, one of the second within 1e-9. So a token is the definition's unless the
number drawn, times the total, is nearer than that to the end of an id's share, or top_p times the total to the end of
the last kept one's. (Of logits nearer to each other than float64's exponential tells apart, 1e-16 T, the definition
keeps the lower ids on top_p's edge, this the higher logit.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from core_engine.kernels.triton.compiling import MainShape

BLOCK = 4096  # ids that are looked at together
ROOM = 4096  # candidates of a row
HEAD = 2048  # of BLOCK lanes: 2,839 candidates are expected then
WARPS = 16
ERROR = 2.0**-17  # of a sum of float32 weights: three roundings of exponents above -40, ex2.approx, and sums of a block
NOTHING = -1  # the token of a row that has none


def workspace_numbers(rows: int) -> int:
    """int32 numbers of the workspace of `sample`."""
    return rows * 2 * ROOM


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor,
    uniform: torch.Tensor, tokens: torch.Tensor, workspace: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Write the token of each row to `tokens` int32 [rows]. No synchronisation; parameters are read on the device.

    logits float32 [rows, vocab_size] after bias, penalties and bans, elements of a row neighbours; -inf is never
    chosen. temperature, top_p, min_p and uniform float64 [rows] (float32 is taken for what it is, which 0.9 is not),
    top_k int32 [rows]; 0, 1 and 0 turn top_k, top_p and min_p off, uniform is in [0, 1). A temperature below 1e-5 is
    greedy: the lowest id among equal maxima. workspace int32, workspace_numbers(rows) of them; None takes one from
    torch's allocator. A row with a NaN or +inf, or with nothing above -inf, gets NOTHING (-1): whoever reads tokens
    has to look. (The definition raises there, but for a greedy row, whose NaN or +inf it takes.)
    """
    rows, vocab_size = logits.shape
    if not rows:
        return
    if workspace is None:
        workspace = torch.empty(workspace_numbers(rows), dtype=torch.int32, device=logits.device)
    _sample[(rows,)](
        logits, temperature, top_k, top_p, min_p, uniform, tokens, workspace, workspace.view(torch.float32),
        vocab_size, logits.stride(0), BLOCK=BLOCK, ROOM=ROOM, HEAD=HEAD, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _key(x):
    """float32 as int32 in the same order; -0 is 0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _number(key):
    """The float32 of an int32 key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _load(row, first, size, BLOCK: tl.constexpr):
    """Logits [BLOCK] from `first` on, -inf beyond the row."""
    ids = first + tl.arange(0, BLOCK)
    return tl.load(row + ids, mask=ids < size, other=float("-inf"))


@triton.jit
def _weights(x, highest, by):
    """float32 exp((x - highest) / T); by: 1 / T. Of -inf it is 0."""
    return tl.exp((x - highest) * by)


@triton.jit
def _precise(x, highest, temperature):
    """The same in float64."""
    return tl.exp((x.to(tl.float64) - highest.to(tl.float64)) / temperature)


@triton.jit
def _kth_of(keys, wanted, low, high):
    """A key in [low, high] that `wanted` of `keys` reach, or, where equal ones are on that edge, the largest that more
    of them reach; at least so many reach low."""
    low, high = low.to(tl.int64), high.to(tl.int64)  # their difference is beyond int32
    while low < high:
        middle = low + (high - low + 1) // 2
        count = tl.sum((keys >= middle).to(tl.int32), axis=0)
        low = tl.where(count >= wanted, middle, low)
        high = tl.where(count > wanted, high, tl.where(count == wanted, middle, middle - 1))
    return low.to(tl.int32)


@triton.jit
def _mass_of(keys, weights, goal, low, high):
    """The largest key in [low, high] that keys of weight `goal` together reach; low is one."""
    low, high = low.to(tl.int64), high.to(tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        if tl.sum(tl.where(keys >= middle, weights, 0.0), axis=0) >= goal:
            low = middle
        else:
            high = middle - 1
    return low.to(tl.int32)


@triton.jit
def _count_from(row, size, key, BLOCK: tl.constexpr):
    """How many logits of the row, but -inf, reach a key."""
    count = tl.zeros([BLOCK], tl.int32)
    for first in range(0, size, BLOCK):
        x = _load(row, first, size, BLOCK)
        count += ((_key(x) >= key) & (x > float("-inf"))).to(tl.int32)
    return tl.sum(count, axis=0)


@triton.jit
def _mass_from(row, size, key, highest, by, BLOCK: tl.constexpr):
    """Weight of the logits that reach a key, float64: sums of blocks in float32, of blocks' sums in float64."""
    mass = tl.zeros([1], tl.float64)
    for first in range(0, size, BLOCK):
        x = _load(row, first, size, BLOCK)
        mass += tl.sum(tl.where(_key(x) >= key, _weights(x, highest, by), 0.0), axis=0).to(tl.float64)
    return tl.sum(mass, axis=0)


@triton.jit
def _equals_kept(above, goal, weight):
    """How many ids of the threshold's weight top_p needs beyond the `above` that is higher: at least one."""
    needed = tl.ceil((goal - above) / weight)
    return tl.minimum(tl.maximum(needed, 1.0), 1e9).to(tl.int32)


@triton.jit
def _id_of_equal(row, size, key, number, BLOCK: tl.constexpr):
    """The id of the number-th logit (from 1) that has this key; `size` where there are fewer."""
    seen, found = tl.sum(tl.zeros([1], tl.int32), axis=0), size
    for first in range(0, size, BLOCK):
        equal = (_key(_load(row, first, size, BLOCK)) == key).to(tl.int32)
        here = tl.sum(equal, axis=0)
        if (seen < number) & (seen + here >= number):
            places = first + tl.arange(0, BLOCK)
            found = tl.min(tl.where((seen + tl.cumsum(equal, axis=0) == number) & (equal == 1), places, size), axis=0)
        seen += here
    return found


@triton.jit
def _placed(ids, weights, goal, NONE: tl.constexpr):
    """The first id at which the running sum of `weights` passes `goal`, of those with a weight; the last such id where
    rounding keeps it from passing."""
    passed = (tl.cumsum(weights, axis=0) > goal) & (weights > 0)
    found = tl.min(tl.where(passed, ids, NONE), axis=0)
    return tl.where(found == NONE, tl.max(tl.where(weights > 0, ids, -1), axis=0), found)


@triton.jit
def _kept_weights(row, first, size, key, last_equal, highest, by, BLOCK: tl.constexpr):
    """Weights [BLOCK] of the ids that the filters keep: above the key, or equal to it up to an id."""
    x = _load(row, first, size, BLOCK)
    keys = _key(x)
    ids = first + tl.arange(0, BLOCK)
    return tl.where((keys > key) | ((keys == key) & (ids <= last_equal)), _weights(x, highest, by), 0.0)


@triton.jit
def _draw_from_row(row, size, key, last_equal, highest, by, number, BLOCK: tl.constexpr):
    """The id that `number` in [0, 1) draws from the whole row: by sums of blocks, then in the block where it falls."""
    total = tl.zeros([1], tl.float64)
    for first in range(0, size, BLOCK):
        total += tl.sum(_kept_weights(row, first, size, key, last_equal, highest, by, BLOCK), axis=0).to(tl.float64)
    whole = tl.sum(total, axis=0)
    goal = whole * number
    before, start, rest = tl.zeros([1], tl.float64), size - size, goal
    ended = False
    for first in range(0, size, BLOCK):
        mass = tl.sum(_kept_weights(row, first, size, key, last_equal, highest, by, BLOCK), axis=0).to(tl.float64)
        reached = tl.sum(before, axis=0)
        after = reached + mass
        if (ended == False) & ((after > goal) | (after >= whole)):  # noqa: E712 (a tensor once compiled)
            start, rest, ended = first, goal - reached, True
        before += mass
    kept = _kept_weights(row, start, size, key, last_equal, highest, by, BLOCK).to(tl.float64)
    return _placed(start + tl.arange(0, BLOCK), kept, rest, 0x7FFFFFFF)


@triton.jit
def _least_by_min_p(highest, temperature, min_p):
    """The key of the lowest logit that min_p keeps: that of max + T log(min_p), rounded up."""
    least = highest.to(tl.float64) + temperature * tl.log(min_p)
    near = _key(least.to(tl.float32))
    return tl.where(_number(near).to(tl.float64) < least, near + 1, near)


@triton.jit
def _written_down(row, size, cut, floor, highest, by, ids_at, values_at, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Write ids and logits from the key `cut` up, in order of ids, as many as there is room for. Returns how many
    there are, how many more are above -inf and reach `floor`, and what these weigh."""
    count = tl.sum(tl.zeros([1], tl.int32), axis=0)
    rest = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([1], tl.float64)
    for first in range(0, size, BLOCK):
        x = _load(row, first, size, BLOCK)
        keys = _key(x)
        taken = (keys >= cut) & (x > float("-inf"))
        left = (keys >= floor) & (keys < cut) & (x > float("-inf"))
        rest += left.to(tl.int32)
        mass += tl.sum(tl.where(left, _weights(x, highest, by), 0.0), axis=0).to(tl.float64)
        here = tl.sum(taken.to(tl.int32), axis=0)
        if here > 0:
            places = count + tl.cumsum(taken.to(tl.int32), axis=0) - 1
            fits = taken & (places < ROOM)
            tl.store(ids_at + places, first + tl.arange(0, BLOCK), mask=fits)
            tl.store(values_at + places, x, mask=fits)
        count += here
    return count, tl.sum(rest, axis=0), tl.sum(mass, axis=0)


@triton.jit
def _from_candidates(ids, x, floor, highest, temperature, top_k, top_p, number, beyond):
    """The token from candidates [ROOM] in order of ids, -inf where there are none, all of them at least at `floor`;
    beyond: the weight of what is below them and top_k does not drop. -2 where top_p needs some of that."""
    keys = _key(x)
    top = _key(highest)
    weights = _precise(x, highest, temperature)
    threshold = floor
    if top_k > 0:
        present = (x > float("-inf")) & (keys >= floor)
        wanted = tl.minimum(top_k, tl.sum(present.to(tl.int32), axis=0))
        threshold = _kth_of(tl.where(present, keys, -0x7FFFFFFF), wanted, floor, top)
    weights = tl.where(keys >= threshold, weights, 0.0)
    enough = True
    if top_p < 1:
        inside = tl.sum(weights, axis=0)
        goal = (inside + beyond) * top_p
        enough = inside >= goal
        if enough:
            threshold = _mass_of(keys, weights, goal, threshold, top)
            above = tl.sum(tl.where(keys > threshold, weights, 0.0), axis=0)
            equal = keys == threshold
            each = tl.max(tl.where(equal, weights, 0.0), axis=0)
            stay = tl.cumsum(equal.to(tl.int32), axis=0) <= _equals_kept(above, goal, each)
            weights = tl.where((keys > threshold) | (equal & stay), weights, 0.0)
    total = tl.sum(weights, axis=0)
    token = _placed(ids, weights, total * number, 0x7FFFFFFF)
    return tl.where(enough, token, -2)


@triton.jit
def _from_row(row, size, floor, highest, by, top_k, top_p, number, BLOCK: tl.constexpr):
    """The token with everything read from the row again: right for whatever the row holds."""
    top = _key(highest)
    threshold, last_equal = floor, size
    if top_k > 0:
        low, high = floor.to(tl.int64), top.to(tl.int64)
        if _count_from(row, size, floor, BLOCK) > top_k:
            while low < high:
                middle = low + (high - low + 1) // 2
                count = _count_from(row, size, middle, BLOCK)
                low = tl.where(count >= top_k, middle, low)
                high = tl.where(count > top_k, high, tl.where(count == top_k, middle, middle - 1))
        threshold = low.to(tl.int32)
    if top_p < 1:
        goal = _mass_from(row, size, threshold, highest, by, BLOCK) * top_p
        low, high = threshold.to(tl.int64), top.to(tl.int64)
        while low < high:
            middle = low + (high - low + 1) // 2
            if _mass_from(row, size, middle, highest, by, BLOCK) >= goal:
                low = middle
            else:
                high = middle - 1
        threshold = low.to(tl.int32)
        above = tl.where(threshold < top, _mass_from(row, size, threshold + 1, highest, by, BLOCK), 0.0)
        each = _weights(_number(threshold), highest, by).to(tl.float64)
        last_equal = _id_of_equal(row, size, threshold, _equals_kept(above, goal, each), BLOCK)
    return _draw_from_row(row, size, threshold, last_equal, highest, by, number, BLOCK)


@triton.jit
def _sample(
    logits, temperatures, top_ks, top_ps, min_ps, uniforms, tokens, ids_room, values_room, size, stride,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * stride
    lanes = tl.full([BLOCK], float("-inf"), tl.float32)
    lane_ids = tl.arange(0, BLOCK)
    wrong = tl.zeros([BLOCK], tl.int32)
    for first in range(0, size, BLOCK):
        x = _load(row, first, size, BLOCK)
        wrong |= ((x != x) | (x == float("inf"))).to(tl.int32)
        lane_ids = tl.where(x > lanes, first + tl.arange(0, BLOCK), lane_ids)
        lanes = tl.maximum(lanes, x)
    highest = tl.max(lanes, axis=0)
    temperature = tl.load(temperatures + index).to(tl.float64)
    token = tl.min(tl.where(lanes == highest, lane_ids, 0x7FFFFFFF), axis=0)
    if (tl.max(wrong, axis=0) > 0) | (highest == float("-inf")):
        token = -1
    elif temperature >= 1e-5:
        token = _drawn(
            row, lanes, highest, temperature, tl.load(top_ks + index), tl.load(top_ps + index).to(tl.float64),
            tl.load(min_ps + index).to(tl.float64), tl.load(uniforms + index).to(tl.float64),
            ids_room + index.to(tl.int64) * 2 * ROOM, values_room + index.to(tl.int64) * 2 * ROOM + ROOM, size,
            BLOCK, ROOM, HEAD,
        )  # fmt: skip
    tl.store(tokens + index, token)


@triton.jit
def _drawn(
    row, lanes, highest, temperature, top_k, top_p, min_p, number, ids_at, values_at, size,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    by = (1.0 / temperature).to(tl.float32)
    top_k = tl.where(top_k < size, top_k, 0)
    floor = _key(tl.full([], -3.4028234663852886e38, tl.float32))  # the lowest that is not -inf
    if min_p > 0:
        floor = tl.maximum(floor, _least_by_min_p(highest, temperature, min_p))
    token = tl.full([], -2, tl.int32)
    if (top_k > 0) | (top_p < 1) | (min_p > 0):
        wanted = tl.where(top_k > 0, tl.minimum(top_k, HEAD), HEAD)
        keys = _key(lanes)
        cut = tl.maximum(floor, _kth_of(keys, wanted, tl.min(keys, axis=0), _key(highest)))
        count, rest, beyond = _written_down(row, size, cut, floor, highest, by, ids_at, values_at, BLOCK, ROOM)
        tl.debug_barrier()  # what one thread wrote another reads
        dropped = (top_k > 0) & (count >= top_k)
        if (count <= ROOM) & (dropped | (rest == 0) | ((top_k <= 0) & (top_p < 1))):
            places = tl.arange(0, ROOM)
            ids = tl.load(ids_at + places, mask=places < count, other=0x7FFFFFFF)
            x = tl.load(values_at + places, mask=places < count, other=float("-inf"))
            beyond = tl.where(dropped, 0.0, beyond)
            token = _from_candidates(ids, x, floor, highest, temperature, top_k, top_p, number, beyond)
    if token == -2:
        token = _from_row(row, size, floor, highest, by, top_k, top_p, number, BLOCK)
    return token


def MAIN_SHAPES() -> list[MainShape]:
    """One kernel for every vocabulary: 128,256 (Llama 3) is a multiple of 16, as is 152,064 (Qwen2.5-7B)."""
    signature = {
        "logits": "*fp32", "temperatures": "*fp64", "top_ks": "*i32", "top_ps": "*fp64", "min_ps": "*fp64",
        "uniforms": "*fp64", "tokens": "*i32", "ids_room": "*i32", "values_room": "*fp32", "size": "i32:16",
        "stride": "i32:16",
    }  # fmt: skip
    constants = {"BLOCK": BLOCK, "ROOM": ROOM, "HEAD": HEAD}
    return [MainShape("sample", _sample, signature, constants, num_warps=WARPS)]
