"""Formats of KV cache elements: bits, and the scales and zero points of groups. One place, so that figures agree."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import InputError

BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
# Bytes of what a group stores beside its elements: int8 is symmetric (one 2-byte scale), int4 and int2 are not (a
# 2-byte scale and a 2-byte zero point). fp8 needs one scale a tensor at most, which is nothing next to the cache.
GROUP_OVERHEAD_BYTES = {"int8": 2, "int4": 4, "int2": 4}
DEFAULT_GROUP_SIZE = 64
_LONG_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "auto": "fp16"}


@dataclass(frozen=True)
class ElementFormat:
    """How elements are stored: `bits` each, and `group_overhead_bytes` for every `group_size` elements of a row.

    `group_size` None: the format has no groups. 0: the format has them, but only the payload is counted, as asked.
    """

    bits: int
    group_size: int | None = None
    group_overhead_bytes: int = 0

    @property
    def payload_only(self) -> bool:
        """True when scales and zero points exist and are left out of the count."""
        return self.group_size == 0

    def payload_bytes(self, elements: int) -> int:
        """Bytes of a row's elements alone, rounded up to a whole byte."""
        return -(-elements * self.bits // 8)

    def overhead_bytes(self, elements: int) -> int:
        """Bytes of the scales and zero points of a row of `elements`; a group never goes beyond a row."""
        return -(-elements // self.group_size) * self.group_overhead_bytes if self.group_size else 0

    def bytes_of(self, elements: int) -> int:
        """Bytes of one row of `elements` (a head's key or value of one token, or a latent), overhead included."""
        return self.payload_bytes(elements) + self.overhead_bytes(elements)

    @property
    def per_element(self) -> str:
        """Payload bytes of one element as text: "2 B", "0.5 B"."""
        return f"{self.bits / 8:g} B"

    def row_text(self, elements: int) -> str:
        """The bytes of a row with the numbers put in: "128 x 2 B", or "(128 x 0.5 B + 2 groups x 4 B)"."""
        payload = f"{elements} x {self.per_element}"
        if not self.group_size:
            return payload
        groups = -(-elements // self.group_size)
        return f"({payload} + {groups} {'group' if groups == 1 else 'groups'} x {self.group_overhead_bytes} B)"


def element_format(dtype: str | None, group_size: int | None = None, field: str = "kv_dtype") -> ElementFormat:
    """The format of a dtype's name; 2 bytes an element for None.

    int8, int4 and int2 store a scale (and int4 and int2 a zero point) for every `group_size` elements, 64 when not
    given; 0 counts their payload only. InputError for an unknown name, or a group size where there are no groups.
    """
    name = "fp16" if dtype is None else _LONG_NAMES.get(dtype, dtype)
    if name not in BITS:
        raise InputError(field, dtype, ", ".join(BITS))
    if name not in GROUP_OVERHEAD_BYTES:
        if group_size is not None:
            accepted = f"a group size only with {field} {', '.join(GROUP_OVERHEAD_BYTES)}"
            raise InputError("kv_group_size", group_size, accepted)
        return ElementFormat(BITS[name])
    size = DEFAULT_GROUP_SIZE if group_size is None else positive("kv_group_size", group_size, minimum=0)
    return ElementFormat(BITS[name], size, GROUP_OVERHEAD_BYTES[name])


def positive(name: str, value: int, maximum: int = 10**9, minimum: int = 1) -> int:
    """`value` when it is an integer from `minimum` to `maximum`; InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InputError(name, value, f"an integer from {minimum} to {maximum:,}")
    return value
