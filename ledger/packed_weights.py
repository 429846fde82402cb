"""Bytes of quantized matrices as the engine holds them: in panels of compiled code, or packed for torch.

What a checkpoint or a published format takes is block_formats.py's; here is what is really allocated, to the byte.
Knows shapes only.
"""

from __future__ import annotations

from dataclasses import dataclass

ORDER_BYTES = {True: 4, False: 8}  # of a column's place: int32 in compiled code, int64 in torch


@dataclass(frozen=True)
class MatrixFormat:
    """How a matrix [out, depth] is quantized.

    bits 4, 6 or 8 a code; group: columns that share a scale of `scale_bytes`. offset: "", "zero" (a byte a group) or
    "minimum" (float16 a group). groups_of_super above 0: scales (and minima) are bytes that multiply those of so many
    groups. activation_group: inputs rounded to int8 with a scale for so many; 0: not rounded. ordered: the columns have
    an order of their own.
    """

    bits: int
    group: int
    scale_bytes: int = 2
    offset: str = ""
    groups_of_super: int = 0
    activation_group: int = 0
    ordered: bool = False


def matrix_bytes(fmt: MatrixFormat, out: int, depth: int, panel_columns: int) -> int:
    """Bytes of one matrix; `panel_columns` 0: as torch's operators hold it.

    In panels every 32 bits hold codes of one column (words_of), and columns are filled up to whole panels.
    """
    groups, compiled = depth // fmt.group, panel_columns > 0
    columns = -(-out // panel_columns) * panel_columns if compiled else out
    if compiled:
        share = fmt.activation_group or fmt.group
        codes = 4 * (depth // share) * words_of(fmt.bits, share)
    else:
        codes = depth * fmt.bits // 8
    own = {"": 0, "zero": 1, "minimum": 2}[fmt.offset]
    outer = fmt.scale_bytes + (own if fmt.offset == "minimum" else 0)
    if fmt.groups_of_super:
        scales = groups // fmt.groups_of_super * outer + groups * (1 + bool(fmt.offset))
    else:
        scales = groups * (fmt.scale_bytes + own)
    return columns * (codes + scales) + (ORDER_BYTES[compiled] * depth if fmt.ordered else 0)


def words_of(bits: int, codes: int) -> int:
    """32-bit words that hold so many codes of a column: 96 bits hold sixteen codes of 6."""
    return -(-codes // 16) * 3 if bits == 6 else -(-codes * bits // 32)


def input_floats(fmt: MatrixFormat, depth: int) -> int:
    """Float32 places of one token's input in the form in which a quantized product reads it.

    As float32: a number for every piece of code in a word and two sums a group. Rounded to int8: 16 bits
    (processors that multiply bytes use half of them), and a scale and a sum for each activation group.
    """
    if fmt.activation_group:
        shares = depth // fmt.activation_group
        return shares * (2 * words_of(8, fmt.activation_group) + 2)
    groups = depth // fmt.group
    return groups * (words_of(fmt.bits, fmt.group) * -(-32 // fmt.bits) + 2)
