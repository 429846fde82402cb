"""A weight matrix in few bits: the one form that quantizers and checkpoints make and kernels pack. Knows no model.

Codes are unpacked here, one in a byte: how they lie in memory while a model runs is the matter of who holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch


@dataclass(frozen=True)
class QuantizedMatrix:
    """W [out, depth] with a scale for every `group` columns of a row.

    codes uint8 [out, depth], from 0 to 2**bits - 1, bits 4, 6 or 8. W is
      scale * (code - 2**(bits - 1))       symmetric: neither zero nor minimum
      scale * (code - zero)                zero uint8 [out, groups]
      scale * code + minimum               minimum float16 [out, groups]
    scale float16 or float32 [out, groups]. Nested: scale_codes (uint8 or int8) [out, groups] multiply a scale that
    stands for several groups [out, supers], as in Q6_K; minimum_codes uint8 [out, groups] likewise, and then
    W = scale * scale_code * code - minimum * minimum_code, as in Q4_K.
    order int64 [depth]: the input column that each column of codes multiplies; None when they are in order (act-order).
    activation_group: inputs of a token that share a dynamic scale when they are rounded to int8; None: not rounded.
    """

    bits: int
    group: int
    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None = None
    minimum: torch.Tensor | None = None
    scale_codes: torch.Tensor | None = None
    minimum_codes: torch.Tensor | None = None
    order: torch.Tensor | None = None
    activation_group: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, depth)."""
        out, depth = self.codes.shape
        return out, depth

    def rows(self, first: int, last: int) -> QuantizedMatrix:
        """Rows [first, last), as views."""
        span = slice(first, last)
        return self.taken(self.codes[span], span)

    def taken(self, codes: torch.Tensor, which: slice | torch.Tensor) -> QuantizedMatrix:
        """The matrix of the rows `which`, whose codes are `codes`."""

        def of(array: torch.Tensor | None) -> torch.Tensor | None:
            return None if array is None else array[which]

        return replace(
            self, codes=codes, scale=self.scale[which], zero=of(self.zero), minimum=of(self.minimum),
            scale_codes=of(self.scale_codes), minimum_codes=of(self.minimum_codes),
        )  # fmt: skip

    def to(self, device: torch.device) -> QuantizedMatrix:
        """The matrix with all its numbers on a device; itself where they are there."""
        moved: dict[str, Any] = {
            name: part.to(device) for name, part in vars(self).items() if isinstance(part, torch.Tensor)
        }
        return replace(self, **moved)

    def dequantized(self) -> torch.Tensor:
        """W in float32 [out, depth], columns in the order of the inputs."""
        out, depth = self.shape
        codes = self.codes.float().view(out, depth // self.group, self.group)
        scale = _per_group(self.scale, self.scale_codes, depth // self.group)[..., None]
        if self.minimum is not None:
            least = _per_group(self.minimum, self.minimum_codes, depth // self.group)[..., None]
            values = codes * scale + (least if self.minimum_codes is None else -least)
        else:
            zero = 2.0 ** (self.bits - 1) if self.zero is None else self.zero.float()[..., None]
            values = (codes - zero) * scale
        values = values.view(out, depth)
        if self.order is None:
            return values
        plain = torch.empty_like(values)
        plain[:, self.order] = values
        return plain


def _per_group(outer: torch.Tensor, inner: torch.Tensor | None, groups: int) -> torch.Tensor:
    """float32 [out, groups] of a plain or nested number."""
    if inner is None:
        return outer.float()
    return outer.float().repeat_interleave(groups // outer.shape[1], dim=1) * inner.float()


@dataclass(frozen=True)
class Joined:
    """Matrices of one input, one below the other: q, k and v, or gate and up. Their formats may differ."""

    parts: tuple[torch.Tensor | QuantizedMatrix, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(out, depth) of all together."""
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]


def rows_of(weight: Weight, sizes: Sequence[int]) -> list[torch.Tensor | QuantizedMatrix]:
    """The matrices of so many rows each that lie one below the other; ValueError when they don't in `weight`.

    Tensors are views.
    """
    if isinstance(weight, torch.Tensor):
        return list(weight.split(list(sizes)))
    if isinstance(weight, QuantizedMatrix):
        return [weight] if len(sizes) == 1 else [weight.rows(*span) for span in pairwise(accumulate(sizes, initial=0))]
    if [part.shape[0] for part in weight.parts] != list(sizes):
        raise ValueError(f"parts of {[part.shape[0] for part in weight.parts]} rows instead of {list(sizes)}")
    return list(weight.parts)


Weight = torch.Tensor | QuantizedMatrix | Joined


def joined(parts: Sequence[torch.Tensor | QuantizedMatrix]) -> Weight:
    """One tensor where all parts are tensors, else the parts."""
    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    return Joined(tuple(parts))
