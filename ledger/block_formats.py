"""How a weight matrix is stored: bits of an element, scales and zero points, padding. Knows shapes only, no model.

Sources of the layouts: the MX specification (OCP, mxfp4), NVIDIA's NVFP4 description, llama.cpp's block types, and the
tensors of AWQ, GPTQ, bitsandbytes and compressed-tensors checkpoints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from ledger.errors import InputError


@dataclass(frozen=True)
class WeightFormat:
    """A format of a weight [..., rows, columns], where a row is what one output element is computed from.

    bits              of one element
    group_size        columns that share a scale; None: no groups
    group_bits        bits a group stores beside its elements: scale, zero point, nested scales
    row_bytes         bytes of a scale for each row (per-channel formats)
    block             (rows, columns) that share one scale of `block_bytes`
    tensor_bytes      bytes of a scale for the whole matrix
    column_bytes      bytes for each column (GPTQ's group index)
    compute_dtype     what the product runs in: "int8" or "fp8" where activations are quantized too, else 16 or 32 bits
    whole_model       True: embedding and head are stored in it too (GGUF files)
    """

    name: str
    bits: int
    group_size: int | None = None
    group_bits: int = 0
    row_bytes: int = 0
    block: tuple[int, int] | None = None
    block_bytes: int = 4
    tensor_bytes: int = 0
    column_bytes: int = 0
    compute_dtype: str = "bf16"
    whole_model: bool = False

    @property
    def quantized(self) -> bool:
        """True when elements take less than 16 bits."""
        return self.bits < 16

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of a weight of this shape, with scales, zero points and the padding of a last, partly filled group.

        Leading dimensions count matrices (stacked experts); a vector is one row.
        """
        columns = shape[-1]
        rows = shape[-2] if len(shape) > 1 else 1
        matrices = prod(shape[:-2])
        if self.group_size is None:
            matrix = -(-rows * columns * self.bits // 8)
        else:
            groups = rows * -(-columns // self.group_size)
            matrix = -(-groups * (self.group_size * self.bits + self.group_bits) // 8)
        matrix += rows * self.row_bytes + columns * self.column_bytes + self.tensor_bytes
        if self.block is not None:
            matrix += -(-rows // self.block[0]) * -(-columns // self.block[1]) * self.block_bytes
        return matrices * matrix

    def bits_per_element(self, shape: tuple[int, ...]) -> float:
        """Bits an element of a weight of this shape costs, overhead included."""
        return 8 * self.bytes_of(shape) / prod(shape)

    @property
    def how(self) -> str:
        """The layout in words: "4 bits + 20 bits a group of 128"."""
        text = f"{self.bits} bits"
        if self.group_size is not None:
            text += f" + {self.group_bits} bits a group of {self.group_size}"
        if self.block is not None:
            text += f" + {self.block_bytes} B a block of {self.block[0]} x {self.block[1]}"
        if self.row_bytes:
            text += f" + {self.row_bytes} B a row"
        if self.column_bytes:
            text += f" + {self.column_bytes} B a column"
        return text


def _gguf(name: str, bits: int, elements: int, block_bytes: int) -> WeightFormat:
    """A llama.cpp block type: `elements` in `block_bytes`, of which `bits` an element are payload."""
    return WeightFormat(name, bits, elements, 8 * block_bytes - bits * elements, whole_model=True)


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    known.name: known
    for known in (
        WeightFormat("fp32", 32, compute_dtype="fp32"),
        WeightFormat("bf16", 16),
        WeightFormat("fp16", 16, compute_dtype="fp16"),
        WeightFormat("fp8", 8, row_bytes=4, compute_dtype="fp8"),
        WeightFormat("fp8-block", 8, block=(128, 128), compute_dtype="fp8"),
        WeightFormat("w8a16", 8, row_bytes=2),
        WeightFormat("w8a8", 8, row_bytes=2, compute_dtype="int8"),
        WeightFormat("w4a16", 4, 128, 16 + 4),  # a 2-byte scale and a packed 4-bit zero point, as AWQ and GPTQ
        WeightFormat("mxfp4", 4, 32, 8),
        WeightFormat("nvfp4", 4, 16, 8, tensor_bytes=4),
        WeightFormat("nf4", 4, 64, 32),
        _gguf("q8_0", 8, 32, 34),
        _gguf("q6_k", 6, 256, 210),
        _gguf("q5_0", 5, 32, 22),
        _gguf("q5_1", 5, 32, 24),
        _gguf("q5_k", 5, 256, 176),
        _gguf("q4_0", 4, 32, 18),
        _gguf("q4_1", 4, 32, 20),
        _gguf("q4_k", 4, 256, 144),
        _gguf("q3_k", 3, 256, 110),
        _gguf("q2_k", 2, 256, 84),
    )
}
# Ways to make 4-bit weights, values of the variable `weights`: they differ in the numbers, not in the layout.
W4A16_METHODS = ("w4a16-rtn", "w4a16-awq", "w4a16-gptq")
_ALIASES = {
    "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "none": "bf16", "auto": "bf16",
    "int8": "w8a8", "int4": "w4a16", "awq": "w4a16", "gptq": "w4a16",
    **dict.fromkeys(W4A16_METHODS, "w4a16"),
}  # fmt: skip
_GROUP_SUFFIX = re.compile(r"-g(\d{1,5})$")

# llama.cpp cannot cut a row into blocks of 256 unless they divide it, and falls back to a type with blocks of 32.
_GGUF_FALLBACK = {"q6_k": "q8_0", "q5_k": "q5_1", "q4_k": "q5_0", "q3_k": "q4_0", "q2_k": "q4_0"}


def weight_format(name: str) -> WeightFormat:
    """The format of a name, whatever its letter case; `w4a16-g64` is w4a16 with groups of 64 columns.

    InputError for a name that is not known, or a group size of 0.
    """
    wanted = str(name).strip().lower()
    suffix = _GROUP_SUFFIX.search(wanted)
    plain = wanted[: suffix.start()] if suffix else wanted
    found = WEIGHT_FORMATS.get(_ALIASES.get(plain, plain))
    if found is None or (suffix and (found.name != "w4a16" or int(suffix[1]) < 1)):
        raise InputError("weights", str(name)[:60], f"as-stored, {', '.join(WEIGHT_FORMATS)}, w4a16-gGROUP")
    return replace(found, name=f"w4a16-g{suffix[1]}", group_size=int(suffix[1])) if suffix else found


# What our kernels hold beside codes: scales as float16, zero points and nested scales in a byte each, orders as int32.
_SCALE_BITS, _ZERO_BITS, _ORDER_BYTES = 16, 8, 4
# Elements of 5 bits are held in 6; nested scales and minima of 6 bits in bytes.
_HELD_GGUF = {
    known.name: known
    for known in (
        WeightFormat("q5_0", 6, 32, 16),
        WeightFormat("q5_1", 6, 32, 32),
        WeightFormat("q4_k", 4, 256, 8 * (4 + 16)),
        WeightFormat("q5_k", 6, 256, 8 * (4 + 16)),
    )
}


def engine_format(weights: str, group: int = 64, *, symmetric: bool = True) -> WeightFormat:
    """What our engine holds a linear layer in, by its variables weights, weight_group and weight_symmetric.

    Less than a byte is saved nowhere: a zero point takes 8 bits, as the kernels read it. GPTQ's columns have an order.
    InputError for a value that quantizes nothing.
    """
    if weights in ("w8a16", "w8a8"):
        return WEIGHT_FORMATS[weights]
    if weights not in W4A16_METHODS:
        raise InputError("weights", weights, ", ".join(("w8a16", "w8a8", *W4A16_METHODS)))
    beside = _SCALE_BITS + (0 if symmetric else _ZERO_BITS)
    order = _ORDER_BYTES if weights == "w4a16-gptq" else 0
    return WeightFormat(f"{weights}-g{group}", 4, group, beside, column_bytes=order)


def held_gguf_format(kind: str) -> WeightFormat:
    """What our engine holds blocks of a GGUF type in; InputError for one that it does not hold as stored."""
    found = _HELD_GGUF.get(kind.lower(), WEIGHT_FORMATS.get(kind.lower()))
    if found is None or kind.lower() not in ("q8_0", "q4_0", "q4_1", "q6_k", *_HELD_GGUF):
        raise InputError("weights", kind[:60], "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K")
    return replace(found, whole_model=False)


def gguf_format(wanted: WeightFormat, columns: int, *, is_output: bool) -> WeightFormat:
    """The type llama.cpp's quantizer gives a matrix of that many columns when asked for `wanted`.

    The output matrix (the embedding when it is tied) gets q6_k, or q8_0 where that was asked for; a row that blocks
    of 256 do not divide falls back to blocks of 32.
    """
    name = wanted.name
    if is_output and name != "q8_0":
        name = "q6_k"
    while columns % (WEIGHT_FORMATS[name].group_size or 1):
        name = _GGUF_FALLBACK.get(name, "fp16")
    return WEIGHT_FORMATS[name]
