"""Paged attention on a CUDA device: launches, the rule that splits keys, and the sizes of tiles.

Prefill chunks and decode rows are one launch: a tile is some queries of one row, whatever the row does. The device
functions are in attention_kernels.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton

from core_engine.kernels.triton.attention_kernels import attend_plain, attend_quantized, merge_splits
from core_engine.kernels.triton.compiling import CAPABILITIES, MainShape
from core_engine.kernels.triton.kv_read import PARTS, QuantizedMemory, padded_part, readable, stored_as
from core_engine.kernels.triton.rows import RowTable, Tiles
from core_engine.kv.cache import QuantizedLayer

MOST_ROWS = 128  # queries x heads of a program: two warp groups' rows of a tensor-core product
PROGRAMS_A_PROCESSOR = 4  # that hide each other's waits on memory, at the shared memory a decode program takes
KEYS_A_SPLIT = 256  # fewer, and writing and merging a split takes longer than its keys
MOST_SPLITS = 64
MERGED = 8  # splits at a time: 8 KB in flight of heads of 256
NATIVE_FP8_FROM = 89  # the capability of Ada
LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Settings:
    """keys: of a tile in a loop step. num_warps, num_stages: Triton's."""

    keys: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class _Step:
    """What both kinds of cache are attended with. scale: to base 2; padded: rows of a program, window 0: none."""

    query: torch.Tensor
    out: torch.Tensor
    rows: RowTable
    tiles: Tiles
    scale: float
    window: int
    splits: int
    workspace: torch.Tensor | None
    tree: torch.Tensor | None
    group: int
    padded: int
    settings: Settings | None


def default_settings(rows: int, head_dim: int, dtype: torch.dtype, major: int) -> Settings:
    """What suits programs of `rows` (queries x heads, padded) on a device of compute capability `major`.x, without
    spilling a register (compiling.py checks that).

    float32 queries are multiplied without tensor cores; their tiles are small for want of registers. Before Hopper
    both factors of a product lie in registers, so that prefill takes half the keys and more warps: at 64 keys of 128
    elements it spilled 88 bytes a thread under a window, 1,412 over fp8.
    """
    if dtype is torch.float32:
        return Settings(16 if head_dim > 128 else 32, 4, 2)
    keys = 32 if head_dim > 128 else 64
    if rows <= 32:
        return Settings(keys, 8 if rows > 16 and head_dim > 128 else 4, 3 if head_dim <= 128 else 2)
    if major < 9:
        return Settings(keys // 2, 8, 2)
    # On Blackwell results lie in memory of their own, and a thread of 8 warps gets too few registers to move those of
    # large heads: it spilled 32 bytes.
    return Settings(keys, 8 if rows >= MOST_ROWS or (head_dim > 128 and major == 9) else 4, 2)


@cache
def major_capability(device: torch.device) -> int:
    """Of compute capability; 0 where kernels are interpreted."""
    return torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else 0


def block_q_for(count: int, group: int, block_size: int, quantized: bool, head_dim: int = 128) -> int:
    """Queries in a tile, for rows of up to `count` new tokens: as many as fill a program's rows with their heads.

    A power of two. Over quantized blocks a tile lies in one block, so that more queries than that are never used. Heads
    above 128 take the registers of so many rows: a half of the rows, a quarter over quantized blocks.
    """
    rows = MOST_ROWS if head_dim <= 128 else MOST_ROWS // (4 if quantized else 2)
    most = max(1, rows // group)
    wanted = min(count, most, block_size if quantized else most)
    return min(triton.next_power_of_2(wanted), 1 << most.bit_length() - 1)


def choose_splits(tiles: int, kv_heads: int, longest: int, processors: int, block_size: int) -> int:
    """In how many ranges each tile's keys are cut: FlashDecoding's rule by how full the device is.

    tiles x kv_heads programs that give each of the `processors` two or more to run fill it: 1. With fewer, the power
    of two that brings them nearest to PROGRAMS_A_PROCESSOR each from below, while a split of the `longest` context
    keeps KEYS_A_SPLIT keys, or a block where those are larger.
    """
    programs = tiles * kv_heads
    if programs >= 2 * processors:
        return 1
    wanted = PROGRAMS_A_PROCESSOR * processors // max(1, programs)
    most = min(wanted, longest // max(KEYS_A_SPLIT, block_size), MOST_SPLITS)
    return 1 << max(1, most).bit_length() - 1


def workspace_floats(tiles: int, block_q: int, heads: int, head_dim: int, splits: int) -> int:
    """float32 numbers that `splits` partial results take; none where keys are not split."""
    return 0 if splits == 1 else tiles * block_q * heads * splits * (head_dim + 1)


@cache
def native_fp8(device: torch.device) -> bool:
    """Whether the device converts e4m3 itself (Ada, Hopper and later)."""
    if device.type != "cuda":
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor >= NATIVE_FP8_FROM


def attend(
    query: torch.Tensor,
    out: torch.Tensor,
    layer: tuple[torch.Tensor, torch.Tensor] | QuantizedLayer,
    rows: RowTable,
    tiles: Tiles,
    *,
    scale: float,
    window: int | None = None,
    splits: int = 1,
    new: tuple[torch.Tensor, torch.Tensor] | None = None,
    tree: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    settings: Settings | None = None,
) -> None:
    """Attend each query to its own sequence up to itself, into `out`. query, out [num_tokens, heads, head_dim].

    layer: keys and values [num_blocks, block_size, kv_heads, head_dim] that hold the step's own already; or a
    quantized layer into which the step's full blocks have been written (kv_write.quantize_blocks), with `new`, the
    step's keys and values [num_tokens, kv_heads, head_dim]. window: keys that a query sees, itself included.
    tree: int64 [num_tokens]; bit j of a query: whether it sees its row's new token j <= 63, if no later than itself
    (over quantized blocks such tokens all lie in one block). workspace: float32, workspace_floats(...) or more of
    them; made here where it is missing.

    Nothing is read back to the host; the grid depends on shapes alone. ValueError where strides or sizes are not those
    a kernel can take.
    """
    _, heads, head_dim = query.shape
    group = heads // (layer[0].shape[2] if isinstance(layer, tuple) else layer._slots.shape[4])
    padded = max(16, triton.next_power_of_2(tiles.block_q * group))
    _refuse(query, out, tree)
    if splits > 1 and workspace is None:
        needed = workspace_floats(len(tiles.rows), tiles.block_q, heads, head_dim, splits)
        workspace = torch.empty(needed, dtype=torch.float32, device=query.device)
    step = _Step(query, out, rows, tiles, scale * LOG2_E, window or 0, splits, workspace, tree, group, padded, settings)
    if isinstance(layer, tuple):
        _plain(*layer, step)
    elif new is None:
        raise ValueError("new: the step's keys and values are needed beside a quantized layer")
    else:
        _quantized(QuantizedMemory.of(layer), *new, step)
    if splits > 1:
        merge_splits[(len(tiles.rows), heads)](
            workspace, out, rows.first, tiles.rows, tiles.firsts, tiles.counts, out.stride(0), out.stride(1),
            HEAD_DIM=head_dim, PADDED=triton.next_power_of_2(head_dim), BLOCK_Q=tiles.block_q, SPLITS=splits,
            MERGED=MERGED, num_warps=2 if head_dim <= 128 else 4,
        )  # fmt: skip


def _refuse(query: torch.Tensor, out: torch.Tensor, tree: torch.Tensor | None) -> None:
    if query.stride(2) != 1 or out.stride(2) != 1:
        raise ValueError("query and out: the elements of a head must lie one after another")
    if tree is not None and tree.dtype is not torch.int64:
        raise ValueError(f"tree {tree.dtype}: int64 is read")


def _plain(keys: torch.Tensor, values: torch.Tensor, step: _Step) -> None:
    _, block_size, kv_heads, head_dim = keys.shape
    if keys.stride() != values.stride() or keys.stride(3) != 1:
        raise ValueError(f"keys and values: strides {keys.stride()}, {values.stride()}: equal ones with 1 at the end")
    query, out, rows, tiles, form = step.query, step.out, step.rows, step.tiles, stored_as(keys)
    chosen = step.settings or default_settings(step.padded, head_dim, query.dtype, major_capability(query.device))
    attend_plain[(len(tiles.rows), kv_heads, step.splits)](
        query, out, readable(keys), readable(values), step.workspace, rows.tables, rows.first, rows.start,
        tiles.rows, tiles.firsts, tiles.counts, step.tree, step.scale,
        query.stride(0), query.stride(1), out.stride(0), out.stride(1), *keys.stride()[:3], rows.tables.stride(0),
        HEAD_DIM=head_dim, PART=padded_part(head_dim, form), GROUP=step.group, HEADS=query.shape[1],
        BLOCK_SIZE=block_size, BLOCK_Q=tiles.block_q, ROWS=step.padded, BLOCK_N=chosen.keys, SPLITS=step.splits,
        WINDOW=step.window, TREE=step.tree is not None, FORMAT=form, NATIVE_FP8=native_fp8(query.device),
        num_warps=chosen.num_warps, num_stages=chosen.num_stages,
    )  # fmt: skip


def _quantized(memory: QuantizedMemory, new_keys: torch.Tensor, new_values: torch.Tensor, step: _Step) -> None:
    kv_heads, head_dim = memory.open.shape[4:]
    if new_keys.stride() != new_values.stride() or new_keys.stride(2) != 1:
        raise ValueError("new: keys and values must lie alike, the elements of a head one after another")
    query, out, rows, tiles = step.query, step.out, step.rows, step.tiles
    form, size = memory.format, memory.block_size
    chosen = step.settings or default_settings(step.padded, head_dim, query.dtype, major_capability(query.device))
    attend_quantized[(len(tiles.rows), kv_heads, step.splits)](
        query, out, memory.raw, memory.open, new_keys, new_values, step.workspace, rows.tables, rows.first, rows.start,
        rows.slots, tiles.rows, tiles.firsts, tiles.counts, step.tree, step.scale,
        query.stride(0), query.stride(1), out.stride(0), out.stride(1), memory.raw.stride(0),
        *memory.open.stride()[:3], new_keys.stride(0), new_keys.stride(1), rows.tables.stride(0),
        HEAD_DIM=head_dim, PART=padded_part(head_dim, form), GROUP=step.group, KV_HEADS=kv_heads,
        BLOCK_SIZE=size, BLOCK_Q=tiles.block_q, ROWS=step.padded, BLOCK_N=chosen.keys,
        OWN_N=_own_keys(size), SPLITS=step.splits, WINDOW=step.window, TREE=step.tree is not None,
        BITS=8 // PARTS[form], CHANNEL=memory.per_channel, OUTLIERS=memory.outliers, SINKS=memory.sinks,
        KEY_BYTES=memory.key_bytes, TOGETHER=min(size & -size, chosen.keys),
        num_warps=chosen.num_warps, num_stages=chosen.num_stages,
    )  # fmt: skip


def _own_keys(block_size: int) -> int:
    """Keys of a full-precision block that are read at a time. They are float32: few, for want of registers."""
    return max(16, min(triton.next_power_of_2(block_size), 32))


def _plain_shape(name: str, head_dim: int, group: int, block_q: int, splits: int, **changed: Any) -> list[MainShape]:
    """Of a bf16 model of 8 KV heads. changed: constants, or the type of the cache."""
    kind = changed.pop("cache", "*bf16")
    form = "fp8" if kind == "*u8" else "plain"
    rows = max(16, triton.next_power_of_2(block_q * group))
    signature = {
        "query": "*bf16", "out": "*bf16", "keys": kind, "values": kind,
        **dict.fromkeys(("tables", "firsts", "starts", "tile_rows", "tile_firsts", "tile_counts"), "*i32"),
        "tree": "*i64", "workspace": "*fp32", "scale": "fp32",
        **dict.fromkeys(("query_token", "query_head", "out_token", "out_head"), "i32:16"),
        **dict.fromkeys(("stride_block", "stride_token", "stride_head", "stride_table"), "i32:16"),
    }  # fmt: skip
    constants = {
        "HEAD_DIM": head_dim, "PART": padded_part(head_dim, form), "GROUP": group, "HEADS": 8 * group,
        "BLOCK_SIZE": 16, "BLOCK_Q": block_q, "ROWS": rows, "SPLITS": splits, "WINDOW": 0,
        "TREE": False, "FORMAT": form, "NATIVE_FP8": False, **_absent(splits, changed), **changed,
    }  # fmt: skip
    return _by_architecture(name, attend_plain, signature, constants, rows, head_dim)


def _by_architecture(
    name: str, kernel: Any, signature: dict[str, str], constants: dict[str, Any], rows: int, head_dim: int
) -> list[MainShape]:
    """The shape as each kind of device launches it."""
    shapes = []
    for capability in CAPABILITIES:
        chosen = default_settings(rows, head_dim, torch.bfloat16, capability // 10)
        own: dict[str, Any] = {"BLOCK_N": chosen.keys}
        if "TOGETHER" in constants:
            own["TOGETHER"] = min(constants["TOGETHER"], chosen.keys)
        if "NATIVE_FP8" in constants:
            own["NATIVE_FP8"] = capability >= NATIVE_FP8_FROM
        every = {**constants, **own}
        shapes.append(MainShape(name, kernel, signature, every, chosen.num_warps, chosen.num_stages, (capability,)))
    return shapes


def _absent(splits: int, changed: dict[str, Any]) -> dict[str, None]:
    """Arguments that are None."""
    without = {"workspace": splits == 1, "tree": not changed.get("TREE", False)}
    return {name: None for name, is_absent in without.items() if is_absent}


def _quantized_shape(
    name: str, head_dim: int, group: int, block_q: int, splits: int, **changed: Any
) -> list[MainShape]:
    """Of a bf16 model of 8 KV heads. changed: constants, and the format by its bits."""
    bits = changed["BITS"]
    form, size = f"int{bits}", changed.get("BLOCK_SIZE", 16)
    rows = max(16, triton.next_power_of_2(block_q * group))
    signature = {
        "query": "*bf16", "out": "*bf16", "raw": "*u8", "open_blocks": "*fp32", "new_keys": "*bf16",
        "new_values": "*bf16", "tree": "*i64", "workspace": "*fp32", "scale": "fp32",
        **dict.fromkeys(("tables", "firsts", "starts", "slots", "tile_rows", "tile_firsts", "tile_counts"), "*i32"),
        **dict.fromkeys(("query_token", "query_head", "out_token", "out_head", "block_bytes"), "i32:16"),
        **dict.fromkeys(("stride_slot", "stride_copy", "stride_side", "new_token", "new_head"), "i32:16"),
        "stride_table": "i32:16",
    }  # fmt: skip
    constants = {
        "HEAD_DIM": head_dim, "PART": padded_part(head_dim, form), "GROUP": group, "KV_HEADS": 8, "BLOCK_SIZE": size,
        "BLOCK_Q": block_q, "ROWS": rows, "OWN_N": _own_keys(size),
        "SPLITS": splits, "WINDOW": 0, "TREE": False, "CHANNEL": bits < 8, "OUTLIERS": 0, "SINKS": 0,
        "KEY_BYTES": size * 8 * (head_dim * bits // 8 + 2), "TOGETHER": size & -size,
        **_absent(splits, changed), **changed,
    }  # fmt: skip
    return _by_architecture(name, attend_quantized, signature, constants, rows, head_dim)


def MAIN_SHAPES() -> list[MainShape]:
    """Heads of 64, 128 and 256 in bf16: prefill and decode, whole and split, over each format."""
    merge = {
        "workspace": "*fp32", "out": "*bf16", "out_token": "i32:16", "out_head": "i32:16",
        **dict.fromkeys(("firsts", "tile_rows", "tile_firsts", "tile_counts"), "*i32"),
    }  # fmt: skip
    return [
        *_plain_shape("attention prefill bf16 128", 128, 4, 32, 1),
        *_plain_shape("attention prefill bf16 128 window", 128, 4, 32, 1, WINDOW=4096),
        *_plain_shape("attention prefill bf16 64", 64, 4, 32, 1),
        *_plain_shape("attention prefill bf16 96", 96, 4, 32, 1),
        *_plain_shape("attention prefill bf16 256", 256, 4, 16, 1),
        *_plain_shape("attention prefill fp8 128", 128, 4, 32, 1, cache="*u8"),
        *_plain_shape("attention decode bf16 128", 128, 4, 1, 1),
        *_plain_shape("attention decode bf16 128 split", 128, 4, 1, 16),
        *_plain_shape("attention decode bf16 64 split", 64, 3, 1, 16),
        *_plain_shape("attention decode bf16 256 split", 256, 8, 1, 16),
        *_plain_shape("attention decode fp8 128 split", 128, 4, 1, 16, cache="*u8"),
        *_plain_shape("attention tree bf16 128 split", 128, 4, 8, 16, TREE=True),
        *_quantized_shape("attention prefill int8 128", 128, 4, 16, 1, BITS=8),
        *_quantized_shape("attention prefill int4 128", 128, 4, 16, 1, BITS=4),
        *_quantized_shape("attention prefill int8 256", 256, 4, 8, 1, BITS=8),
        *_quantized_shape("attention decode int8 128", 128, 4, 1, 1, BITS=8),
        *_quantized_shape("attention decode int8 128 split", 128, 4, 1, 16, BITS=8),
        *_quantized_shape("attention decode int8 64 split", 64, 3, 1, 16, BITS=8),
        *_quantized_shape("attention decode int4 128 split", 128, 4, 1, 16, BITS=4),
        *_quantized_shape("attention decode int4 token 128 split", 128, 4, 1, 16, BITS=4, CHANNEL=False),
        *_quantized_shape("attention decode int4 sinks 128 split", 128, 4, 1, 16, BITS=4, SINKS=1),
        *_quantized_shape("attention decode int4 outliers 128 split", 128, 4, 1, 16, BITS=4, OUTLIERS=4),
        *_quantized_shape("attention decode int2 128 split", 128, 4, 1, 16, BITS=2),
        MainShape("attention merge 128", merge_splits, merge,
                  {"HEAD_DIM": 128, "PADDED": 128, "BLOCK_Q": 1, "SPLITS": 16, "MERGED": MERGED}, 2),
    ]  # fmt: skip
