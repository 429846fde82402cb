"""Element formats: bits, group overhead, and the rounding of part-byte totals. One place, so that figures agree."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import InputError

BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
GROUPED = ("int8", "int4", "int2")  # formats that store a scale and a zero point a group
GROUP_OVERHEAD_BYTES = 4  # one 2-byte scale and one 2-byte zero point
_LONG_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "auto": "fp16"}


@dataclass(frozen=True)
class ElementFormat:
    """How elements are stored: `bits` each, and with `group_size` a scale and a zero point for every so many."""

    bits: int
    group_size: int | None = None

    def bytes_of(self, elements: int) -> int:
        """Bytes of `elements`, rounded up to a whole byte."""
        if self.group_size is None:
            return -(-elements * self.bits // 8)
        bits_a_group = self.bits * self.group_size + 8 * GROUP_OVERHEAD_BYTES
        return -(-elements * bits_a_group // (8 * self.group_size))

    @property
    def per_element(self) -> str:
        """Bytes of one element as text: "2 B", or "(0.5 B + 4 B / 64)" with groups."""
        plain = f"{self.bits / 8:g} B"
        return plain if self.group_size is None else f"({plain} + {GROUP_OVERHEAD_BYTES} B / {self.group_size})"


def element_format(dtype: str | None, group_size: int | None = None, field: str = "kv_dtype") -> ElementFormat:
    """The format of a dtype's name; 2 bytes an element for None. InputError for an unknown name or group."""
    name = "fp16" if dtype is None else _LONG_NAMES.get(dtype, dtype)
    if name not in BITS:
        raise InputError(field, dtype, ", ".join(BITS))
    if group_size is not None:
        positive("kv_group_size", group_size)
        if name not in GROUPED:
            raise InputError("kv_group_size", group_size, f"a group size only with {field} {', '.join(GROUPED)}")
    return ElementFormat(BITS[name], group_size)


def positive(name: str, value: int, maximum: int = 10**9) -> int:
    """`value` when it is an integer from 1 to `maximum`; InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise InputError(name, value, f"an integer from 1 to {maximum:,}")
    return value
