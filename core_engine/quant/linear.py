"""Quantized matrices as torch's operators hold and multiply them: the oracle of the compiled products.

4-bit codes lie two in a byte, 6-bit ones four in three bytes. Each product dequantizes, or, where activations are
rounded to int8 too, multiplies integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from core_engine.quant.matrix import Joined, QuantizedMatrix, Weight, rows_of

LARGEST_INT8 = 127
NOTHING = 1e-30  # magnitudes from here down count as zero: 127 / them would overflow
EXACT_IN_FLOAT32 = 2**24 // (LARGEST_INT8 * 128)  # products of int8 whose sum is still an exact float32


class HeldMatrix(Protocol):
    """A quantized matrix W [out, depth] in the form in which it is multiplied."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, depth)."""
        ...

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor held."""
        ...

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_tokens, depth] W^T, in x's dtype."""
        ...


@runtime_checkable
class Table(Protocol):
    """A matrix whose rows can be looked up, as an embedding's are."""

    def rows(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows `ids`, [len(ids), depth]."""
        ...


@dataclass(frozen=True)
class PackedMatrix:
    """A QuantizedMatrix whose codes are packed along its rows. `form` holds everything but them."""

    form: QuantizedMatrix  # its codes are empty: [out, 0]
    packed: torch.Tensor  # uint8 [out, bytes]
    shape: tuple[int, int]  # (out, depth)

    @classmethod
    def of(cls, matrix: QuantizedMatrix) -> PackedMatrix:
        """Packed; ValueError when a row's codes do not fill whole bytes."""
        out, depth = matrix.shape
        if depth * matrix.bits % 8:
            raise ValueError(f"{depth} codes of {matrix.bits} bits do not fill whole bytes")
        owned = replace(matrix, codes=matrix.codes.new_empty(out, 0))
        return cls(owned, pack(matrix.codes, matrix.bits), (out, depth))

    def matrix(self) -> QuantizedMatrix:
        """The codes one in a byte again."""
        return replace(self.form, codes=unpack(self.packed, self.form.bits, self.shape[1]))

    def rows(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows `ids` of W, [len(ids), depth]."""
        codes = unpack(self.packed[ids], self.form.bits, self.shape[1])
        return self.form.taken(codes, ids).dequantized().to(dtype)

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor held."""
        form = self.form
        arrays = (form.scale, form.zero, form.minimum, form.scale_codes, form.minimum_codes, form.order)
        return [self.packed, *[array for array in arrays if array is not None]]

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_tokens, depth] W^T, in x's dtype."""
        if self.form.activation_group is None:
            return x @ self.matrix().dequantized().to(x.dtype).t()
        return integer_product(x, self.matrix()).to(x.dtype)


@dataclass(frozen=True)
class Stacked:
    """Matrices of one input, one below the other, as they are held."""

    parts: tuple[torch.Tensor | HeldMatrix, ...]


Held = torch.Tensor | HeldMatrix | Stacked
AnyWeight = Weight | Held


def held(weight: AnyWeight) -> Held:
    """The weight with its codes packed; what is held already is itself."""
    return held_by(weight, PackedMatrix.of)


def held_by(weight: AnyWeight, hold: Callable[[QuantizedMatrix], HeldMatrix]) -> Held:
    """The weight with its quantized matrices held as `hold` says; what is held already is itself."""
    if isinstance(weight, QuantizedMatrix):
        return hold(weight)
    if isinstance(weight, Joined):
        return Stacked(tuple(hold(part) if isinstance(part, QuantizedMatrix) else part for part in weight.parts))
    return weight


def unpacked(weight: AnyWeight) -> Weight:
    """The weight as quantizers make it; the opposite of `held`. TypeError for what a device has laid out."""
    if isinstance(weight, torch.Tensor | QuantizedMatrix | Joined):
        return weight
    if isinstance(weight, Stacked):
        return Joined(tuple(part if isinstance(part, torch.Tensor) else _matrix(part) for part in weight.parts))
    return _matrix(weight)


def _matrix(weight: HeldMatrix) -> QuantizedMatrix:
    if not isinstance(weight, PackedMatrix):
        raise TypeError(f"a {type(weight).__name__} is not taken apart again")
    return weight.matrix()


def held_rows(weight: AnyWeight, sizes: Sequence[int]) -> list[torch.Tensor | HeldMatrix] | None:
    """As rows_of, of what is held; None where a device has laid out all rows as one."""
    weight = held(weight)
    if isinstance(weight, Stacked):
        return list(weight.parts)
    if isinstance(weight, torch.Tensor):
        return list(weight.split(list(sizes)))
    if not isinstance(weight, PackedMatrix):
        return None
    return [PackedMatrix.of(part) for part in rows_of(weight.matrix(), sizes) if isinstance(part, QuantizedMatrix)]


def tensors_of(weight: AnyWeight) -> list[torch.Tensor]:
    """Every tensor of a weight, quantized or not, held or not."""
    if isinstance(weight, torch.Tensor):
        return [weight]
    if isinstance(weight, QuantizedMatrix):
        return [array for array in vars(weight).values() if isinstance(array, torch.Tensor)]
    if isinstance(weight, Joined | Stacked):
        return [tensor for part in weight.parts for tensor in tensors_of(part)]
    return weight.tensors()


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [..., depth] codes to [..., depth * bits / 8] bytes, low bits first."""
    if bits == 8:
        return codes.contiguous()
    if bits == 4:
        return codes[..., 0::2] | codes[..., 1::2] << 4
    a, b, c, d = (codes[..., i::4] for i in range(4))
    return torch.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], dim=-1).flatten(-2)


def unpack(packed: torch.Tensor, bits: int, depth: int) -> torch.Tensor:
    """The codes [..., depth] of `pack`."""
    if bits == 8:
        return packed
    if bits == 4:
        return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)[..., :depth]
    a, b, c = (packed[..., i::3] for i in range(3))
    codes = [a & 63, (a >> 6 | b << 2) & 63, (b >> 4 | c << 4) & 63, c >> 2]
    return torch.stack(codes, dim=-1).flatten(-2)[..., :depth]


def rounded(x: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations [num_tokens, depth] as integers from -127 to 127 (float32 [num_tokens, depth / group, group]) and a
    scale for each `group` of a token's, its largest magnitude / 127. Rounded to nearest, ties to even."""
    shares = x.float().view(x.shape[0], -1, group)
    largest = shares.abs().amax(dim=-1)
    by = torch.where(largest > NOTHING, LARGEST_INT8 / largest, 0.0)
    return torch.round(shares * by[..., None]), largest / LARGEST_INT8


def integer_product(x: torch.Tensor, matrix: QuantizedMatrix) -> torch.Tensor:
    """x [num_tokens, depth] W^T in float32, x rounded to int8: exact integer sums within an activation group."""
    group, (out, depth) = matrix.activation_group or matrix.shape[1], matrix.shape
    if matrix.bits != 8 or matrix.zero is not None or matrix.minimum is not None or matrix.group % group:
        raise ValueError("integer products take symmetric 8-bit codes with whole activation groups in a weight group")
    integers, scales = rounded(x if matrix.order is None else x[:, matrix.order], group)
    exact = torch.float32 if group <= EXACT_IN_FLOAT32 else torch.float64
    weight_scale = replace(matrix, codes=matrix.codes.new_full((out, depth), 129)).dequantized()
    if matrix.order is not None:
        weight_scale = weight_scale[:, matrix.order]
    result = x.new_zeros(x.shape[0], out, dtype=torch.float32)
    for index in range(depth // group):
        first = index * group
        weight = (matrix.codes[:, first : first + group].float() - 128).to(exact)
        sums = (integers[:, index].to(exact) @ weight.t()).float()
        result += sums * scales[:, index, None] * weight_scale[:, first]
    return result
