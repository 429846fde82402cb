"""KVFormat: how keys and values are kept, as the settings say and as a device can.

Owns the rule of which formats run where. The bytes of a quantized block are in core_engine/kv/block.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from core_engine.config import EngineConfig
from core_engine.environment import dtype_name, dtypes
from ledger.errors import CannotRunError, InputError
from ledger.kv_blocks import QUANTIZED, BlockFormat

CAST_DTYPES = {**dtypes(), "fp8": torch.float8_e4m3fn}
NOT_ON_A_CPU = {
    "fp16": "no fast fp16 conversion is used on a CPU",
    "fp8": "a CPU has no fp8 instructions: int8 takes as many bytes and keeps a scale per token and head",
}
MOST_HEAD_DIM = 256  # an outlier's index is a byte


@dataclass(frozen=True)
class KVFormat:
    """name: one of ledger.formats.BITS; key_axis and protect act on int4 and int2 alone.

    int8: per token and head, symmetric, a scale. int4 and int2: values per token and head, keys per channel over the
    tokens of a block (key_axis "channel") or per token and head as well ("token"), with a scale and a minimum.
    protect "sinks": the first block of a sequence stays in full precision; "outliers": a few elements of every token
    and head are kept apart. Scales, minima and outliers are fp16.
    """

    name: str
    key_axis: str = "channel"
    protect: str = "none"

    @classmethod
    def from_config(cls, config: EngineConfig, dtype: torch.dtype) -> KVFormat:
        """The format that a configuration asks for beside weights of `dtype`."""
        name = dtype_name(dtype) if config.kv_dtype == "auto" else config.kv_dtype
        return cls(name, config.kv_key_axis, config.kv_protect)

    @property
    def is_quantized(self) -> bool:
        """Whether blocks hold integers with scales; else elements of `dtype`."""
        return self.name in QUANTIZED

    @property
    def dtype(self) -> torch.dtype:
        """Of the cache tensor."""
        return torch.uint8 if self.is_quantized else CAST_DTYPES[self.name]

    @cached_property
    def blocks(self) -> BlockFormat:
        """The ledger's view of a block."""
        return BlockFormat(self.name, self.key_axis, self.protect)

    def text(self) -> str:
        """One word of all that changes what is stored: "int4/channel/none", "bf16"."""
        return f"{self.name}/{self.key_axis}/{self.protect}" if self.blocks.has_zero else self.name

    def refuse_what_cannot_run(self, device: torch.device, head_dim: int) -> None:
        """CannotRunError where the device lacks the format, InputError where heads don't fill its bytes."""
        if device.type == "cpu" and self.name in NOT_ON_A_CPU:
            raise CannotRunError(f"kv_dtype={self.name}: {NOT_ON_A_CPU[self.name]}")
        if self.is_quantized and (head_dim % self.blocks.codes_a_byte or head_dim > MOST_HEAD_DIM):
            needed = f"a multiple of {self.blocks.codes_a_byte}, at most {MOST_HEAD_DIM}"
            raise InputError(
                "kv_dtype", self.name, f"another format: the head size is {head_dim}, it has to be {needed}"
            )
