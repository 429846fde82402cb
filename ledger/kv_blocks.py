"""Bytes of the engine's own KV blocks in every format: codes, scales, minima and outliers of a block of tokens, and the
full-precision blocks that quantized formats hold beside the pool. Knows ModelSpec only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.formats import BITS
from ledger.layers import LayerSpec
from ledger.model_spec import ModelSpec

QUANTIZED = ("int8", "int4", "int2")
KEY_AXES, PROTECTIONS = ("channel", "token"), ("none", "sinks", "outliers")
HALF_BYTES, FLOAT_BYTES = 2, 4
OUTLIER_BYTES = 3  # an index of one byte and an fp16 value
HEAD_ELEMENTS_AN_OUTLIER = 32  # of 64 elements of a token and head, two are kept apart
SINK_BLOCKS = 1


@dataclass(frozen=True)
class BlockFormat:
    """A KV format by name, with what groups keys share a scale in ("channel" or "token") and what is protected."""

    name: str
    key_axis: str = "channel"
    protect: str = "none"

    @property
    def is_quantized(self) -> bool:
        """Whether elements are integers with scales."""
        return self.name in QUANTIZED

    @property
    def bits(self) -> int:
        """Of one element's code."""
        return BITS[self.name]

    @property
    def codes_a_byte(self) -> int:
        """Elements that share a byte."""
        return max(1, 8 // self.bits)

    @property
    def has_zero(self) -> bool:
        """Whether a group has a minimum beside its scale; axis and protection are for these formats."""
        return self.name in ("int4", "int2")

    @property
    def sink_blocks(self) -> int:
        """First blocks of a sequence that stay in full precision."""
        return SINK_BLOCKS if self.has_zero and self.protect == "sinks" else 0

    def outliers(self, head_dim: int) -> int:
        """Elements of every token and head that are kept apart."""
        return -(-head_dim // HEAD_ELEMENTS_AN_OUTLIER) if self.has_zero and self.protect == "outliers" else 0

    def side_bytes(self, block_size: int, kv_heads: int, head_dim: int, *, keys: bool) -> int:
        """Bytes of a block's keys or values in one layer."""
        vectors = block_size * kv_heads
        if not self.is_quantized:
            return vectors * head_dim * self.bits // 8
        groups = kv_heads * head_dim if keys and self.has_zero and self.key_axis == "channel" else vectors
        numbers = groups * (2 if self.has_zero else 1)
        payload = vectors * head_dim // self.codes_a_byte
        return payload + numbers * HALF_BYTES + vectors * self.outliers(head_dim) * OUTLIER_BYTES

    def block_bytes(self, spec: ModelSpec, block_size: int) -> int:
        """Bytes of a block in all layers, scales included."""
        if not self.is_quantized:
            return sum(layer.kv_elements for layer in spec.layers) * block_size * self.bits // 8
        sizes = (block_size, spec.num_kv_heads, spec.head_dim)
        return spec.num_layers * (self.side_bytes(*sizes, keys=True) + self.side_bytes(*sizes, keys=False))

    def tail_bytes(self, spec: ModelSpec, block_size: int, slots: int) -> int:
        """Bytes of the open blocks, and of the sinks, of `slots` running requests, in float32; they come on top of the
        pool."""
        if not self.is_quantized:
            return 0
        elements = sum(layer.kv_elements for layer in spec.layers)
        return slots * (1 + self.sink_blocks) * block_size * elements * FLOAT_BYTES

    def how(self, spec: ModelSpec, block_size: int) -> str:
        """The bytes of a block with the numbers put in."""
        total = self.block_bytes(spec, block_size)
        if not self.is_quantized:
            return f"{block_size} tokens x {total // block_size:,} B"
        bits = 8 * total / (block_size * sum(layer.kv_elements for layer in spec.layers))
        return f"{block_size} tokens in {self.name}, {bits:.2f} bits an element with scales"


def one_shape(layers: Sequence[LayerSpec]) -> LayerSpec | None:
    """The layer that all of these are alike to in what they keep, as our engine's cache has them: keys and values of
    one size, for every token. None where they are not."""
    if not layers or len({(layer.kv_heads, layer.k_head_dim, layer.v_head_dim) for layer in layers}) > 1:
        return None
    layer = layers[0]
    plain = [row.what for row in layer.rows] == ["key", "value"] and layer.k_head_dim == layer.v_head_dim
    return layer if plain else None


def blocks_of_sequence(
    form: BlockFormat, layer: LayerSpec, layers: int, seq_len: int, block_size: int, tp: int = 1
) -> tuple[int, int]:
    """(bytes in the pool, bytes of open blocks and sinks beside it) of one running sequence in so many layers alike."""
    sizes = block_size, -(-layer.kv_heads // tp), layer.k_head_dim
    block = layers * (form.side_bytes(*sizes, keys=True) + form.side_bytes(*sizes, keys=False))
    elements = 2 * layers * block_size * sizes[1] * layer.k_head_dim
    beside = (1 + form.sink_blocks) * elements * FLOAT_BYTES if form.is_quantized else 0
    return -(-seq_len // block_size) * block, beside


def admitted(
    spec: ModelSpec, form: BlockFormat, kv_memory_bytes: int, block_size: int, seq_len: int, max_num_seqs: int
) -> int:
    """Sequences of `seq_len` tokens that a pool of so many bytes holds at once, each in whole blocks of its own."""
    blocks = kv_memory_bytes // form.block_bytes(spec, block_size)
    return min(max_num_seqs, sequences_held(blocks, block_size, seq_len))


def sequences_held(blocks: int, block_size: int, seq_len: int) -> int:
    """Sequences of `seq_len` tokens (from 1) that so many blocks hold at once, each in whole blocks of its own."""
    return blocks // -(-seq_len // block_size)
