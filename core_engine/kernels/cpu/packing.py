"""Weight matrices as compiled code reads them: panels of columns, plain or in few bits (gemm.h, quantized.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from core_engine.kernels.cpu.native import Codes, Matrix
from core_engine.memory_readings import prefer_huge_pages
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError

Part = torch.Tensor | QuantizedMatrix
CENTRED, ZERO, MINIMUM = 0, 1, 2


def packed(
    lib: ctypes.CDLL, families: Sequence[Sequence[Part]], dtype: torch.dtype
) -> tuple[list[list[Matrix]], list[torch.Tensor]]:
    """Every matrix packed, and the tensors that the matrices point into: all panels in one, and the orders of columns.

    The panels of a family lie in turns: the first of each matrix, then the second of each. So its matrices have the
    same number of panels. `dtype` is that of plain ones. InputError for a matrix that the kernels have no form for.
    """
    held: list[torch.Tensor] = []
    found = [[_described(part, held) for part in family] for family in families]
    width, is_bf16 = int(lib.trilemma_panel()), ctypes.c_int64(dtype is torch.bfloat16)
    sizes = [[int(lib.trilemma_panel_bytes(ctypes.byref(m), is_bf16)) for m in family] for family in found]
    counts = [-(-family[0].columns // width) for family in found]
    total = sum(count * sum(family) for count, family in zip(counts, sizes, strict=True))
    room = torch.empty(total, dtype=torch.uint8)
    prefer_huge_pages(room)
    at = room.data_ptr()
    for family, parts, of_family, count in zip(found, families, sizes, counts, strict=True):
        for place, (matrix, part) in enumerate(zip(family, parts, strict=True)):
            matrix.panels, matrix.stride = at + sum(of_family[:place]), sum(of_family)
            _write(lib, matrix, part, is_bf16)
        at += count * sum(of_family)
    return found, [room, *held]


def _described(part: Part, held: list[torch.Tensor]) -> Matrix:
    """The format of a part; the order of its columns, where it has one, is added to `held`."""
    columns, depth = part.shape
    if isinstance(part, torch.Tensor):
        return Matrix(columns=columns, depth=depth)
    _check(part)
    order = None
    if part.order is not None:
        held.append(part.order.to(torch.int32).contiguous())
        order = held[-1].data_ptr()
    return Matrix(
        columns=columns,
        depth=depth,
        bits=part.bits,
        group=part.group,
        scale_bytes=part.scale.element_size(),
        offset=ZERO if part.zero is not None else MINIMUM if part.minimum is not None else CENTRED,
        groups_of_super=0 if part.scale_codes is None else depth // part.group // part.scale.shape[1],
        signed_scales=part.scale_codes is not None and part.scale_codes.dtype is torch.int8,
        activation_group=part.activation_group or 0,
        order=order,
    )


def _check(part: QuantizedMatrix) -> None:
    """InputError for what neither the layout of panels nor the integer product can hold."""
    depth, groups = part.shape[1], part.shape[1] // part.group
    codes_of_a_unit = {4: 8, 6: 16, 8: 1}[part.bits]
    if depth % part.group or part.group % codes_of_a_unit:
        accepted = f"one that divides {depth} and is a multiple of {codes_of_a_unit}, with {part.bits} bits"
        raise InputError("weight_group", part.group, accepted)
    if part.scale_codes is not None and groups % part.scale.shape[1]:
        raise InputError("scale", list(part.scale.shape), f"a number of scales that divides {groups} groups")
    if (part.minimum_codes is None) != (part.scale_codes is None or part.minimum is None):
        raise InputError(
            "minimum_codes", part.minimum_codes is not None, "nested minima with nested scales, or neither"
        )
    if part.activation_group is not None:
        centred = part.bits == 8 and part.zero is None and part.minimum is None
        if not centred or part.group % part.activation_group:
            accepted = f"a divisor of the weight's group of {part.group}, whose 8-bit codes are symmetric"
            raise InputError("activation_group", part.activation_group, accepted)


def _write(lib: ctypes.CDLL, matrix: Matrix, part: Part, is_bf16: ctypes.c_int64) -> None:
    if isinstance(part, torch.Tensor):
        rows = part.contiguous()
        lib.trilemma_pack(ctypes.byref(matrix), ctypes.c_void_p(rows.data_ptr()), is_bf16)
        return
    offset = part.zero if part.zero is not None else part.minimum
    arrays = (part.codes, part.scale, part.scale_codes, offset, part.minimum_codes)
    owned = [None if array is None else array.contiguous() for array in arrays]
    codes = Codes(*[None if array is None else array.data_ptr() for array in owned])
    lib.trilemma_pack_codes(ctypes.byref(matrix), ctypes.byref(codes))
