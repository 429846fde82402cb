"""Linear layers of quantized checkpoints as QuantizedMatrix: AutoAWQ, GPTQ and compressed-tensors.

Owns what a `quantization_config` means and how each library packs its integers. Formats and settings that are not
listed here are refused by name. Sources: AutoAWQ 0.2.9 (WQLinear_GEMM), AutoGPTQ 0.7.1 and GPTQModel 7.7 (qlinear), and
compressed-tensors 0.20.1 (pack_quantized, naive_quantized).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError

WORD = 32
# AutoAWQ puts output 8 i + AWQ_ORDER[j] of every eight into nibble j of a word.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FIELD = "model (quantization_config.{} in config.json)"
FORMS = ("pack-quantized", "int-quantized", "naive-quantized")
# Beside quantization_config in a config.json of ours: what its format has no name for.
OWN = "trilemma_quantization"

Parts = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Layout:
    """How a checkpoint stores a quantized module: the suffixes of its tensors, of which `key` tells that it is one, and
    what makes a matrix of them. Suffixes in `optional` may be missing."""

    method: str
    key: str
    suffixes: tuple[str, ...]
    optional: tuple[str, ...]
    read: Callable[[Parts], QuantizedMatrix]


def layout_of(config: Mapping[str, Any]) -> Layout | None:
    """The layout that config.json's quantization_config describes, None without; InputError for what is not read."""
    settings = config.get("quantization_config")
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        raise InputError(FIELD.format("quant_method"), type(settings).__name__, "an object of settings")
    method = str(settings.get("quant_method")).replace("_", "-")
    if method == "awq":
        return _awq(settings)
    if method == "gptq":
        return _gptq(settings)
    if method == "compressed-tensors":
        own = config.get(OWN)
        return _compressed_tensors(settings, own.get("activation_group") if isinstance(own, Mapping) else None)
    accepted = "awq, gptq or compressed-tensors"
    raise InputError(FIELD.format("quant_method"), settings.get("quant_method"), accepted)


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 words [rows, n] as numbers uint8 [rows, n * 32 / bits], the lowest bits of a word first. bits 4 or 8."""
    shifts = torch.arange(0, WORD, bits, dtype=torch.int32)
    numbers = (words[..., None] >> shifts) & (2**bits - 1)
    return numbers.to(torch.uint8).flatten(-2)


def packed(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """The reverse of `unpacked`: uint8 [rows, n] as int32 words; a last word that is not full ends in zeros."""
    places = WORD // bits
    rows, count = numbers.shape
    filled = torch.zeros(rows, -(-count // places) * places, dtype=torch.int64)
    filled[:, :count] = numbers
    shifts = torch.arange(0, WORD, bits, dtype=torch.int64)
    words = (filled.view(rows, -1, places) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _awq(settings: Mapping[str, Any]) -> Layout:
    bits = _one_of(settings, ("bits", "w_bit"), (4,))
    _one_of({"version": str(settings.get("version", "gemm")).lower()}, ("version",), ("gemm",))
    _one_of({"zero_point": True, **settings}, ("zero_point",), (True,))
    size = _group_size(settings, ("group_size", "q_group_size"))

    def read(parts: Parts) -> QuantizedMatrix:
        codes, zeros = (_deinterleaved(unpacked(parts[name], bits)) for name in ("qweight", "qzeros"))
        codes = codes.t().contiguous()
        return QuantizedMatrix(
            bits, size or codes.shape[1], codes, _exact(parts["scales"].t()), zero=zeros.t().contiguous()
        )

    return Layout("awq", "qweight", ("qweight", "qzeros", "scales"), (), read)


def _deinterleaved(numbers: torch.Tensor) -> torch.Tensor:
    """Columns of AutoAWQ's nibbles in their own order."""
    places = torch.empty(len(AWQ_ORDER), dtype=torch.int64)
    places[torch.tensor(AWQ_ORDER)] = torch.arange(len(AWQ_ORDER))
    return numbers.unflatten(-1, (-1, len(AWQ_ORDER)))[..., places].flatten(-2)


def _gptq(settings: Mapping[str, Any]) -> Layout:
    bits = _one_of(settings, ("bits",), (4, 8))
    size = _group_size(settings, ("group_size",))
    form = _one_of({"checkpoint_format": "gptq", **settings}, ("checkpoint_format",), ("gptq", "gptq_v2"))

    def read(parts: Parts) -> QuantizedMatrix:
        codes = unpacked(parts["qweight"].t(), bits)  # words hold neighbours along the depth
        # The first format stores one less, so that 0 wraps around to the largest number.
        zeros = (unpacked(parts["qzeros"], bits) + (1 if form == "gptq" else 0)) & (2**bits - 1)
        return _ordered(
            QuantizedMatrix(
                bits, size or codes.shape[1], codes, _exact(parts["scales"].t()), zero=_plain_zero(zeros.t(), bits)
            ),
            parts.get("g_idx"),
        )

    return Layout("gptq", "qweight", ("qweight", "qzeros", "scales"), ("g_idx",), read)


def _compressed_tensors(settings: Mapping[str, Any], finer: Any) -> Layout:
    """finer: inputs of a token that share a scale, where they are not all of them (int8 activations)."""
    weights, rounds_inputs, form = _compressed_settings(settings)
    if finer is not None and (not isinstance(finer, int) or finer < 1):
        raise InputError(f"model ({OWN}.activation_group in config.json)", finer, "a whole number from 1 up")
    bits = _one_of(weights, ("num_bits",), (4, 8) if form == "pack-quantized" else (8,))
    size = _group_size({"group_size": -1, **{k: v for k, v in weights.items() if v is not None}}, ("group_size",))
    symmetric = weights.get("symmetric", True)
    packs = form == "pack-quantized"

    def read(parts: Parts) -> QuantizedMatrix:
        if packs:
            out, depth = (int(size) for size in parts["weight_shape"])
            codes = unpacked(parts["weight_packed"], bits)[:, :depth].contiguous()
        else:
            codes = _unsigned(parts["weight"])
            out, depth = codes.shape
        zero = parts.get("weight_zero_point")
        if zero is not None:  # packed along the outputs; as signed numbers where weights are not packed either
            zero = unpacked(zero.t(), bits)[:, :out].t() if packs else _unsigned(zero)
        elif not symmetric:
            raise InputError("model", "no weight_zero_point", "zero points, as symmetric=false in config.json says")
        scale = _exact(parts["weight_scale"])
        matrix = QuantizedMatrix(
            bits, size or depth, codes, scale, zero=None if zero is None else _plain_zero(zero, bits),
            activation_group=(depth if finer is None or depth % finer else finer) if rounds_inputs else None,
        )  # fmt: skip
        return _ordered(matrix, parts.get("weight_g_idx"))

    own = ("weight_packed", "weight_shape") if packs else ("weight",)
    optional = ("weight_zero_point", "weight_g_idx")
    return Layout("compressed-tensors", "weight_scale", ("weight_scale", *own), optional, read)


def _compressed_settings(settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, str]:
    """(weights' settings, whether inputs are rounded to int8, format) of a compressed-tensors configuration."""
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise InputError(FIELD.format("config_groups"), groups and f"{len(groups)} groups", "one group of settings")
    (group,) = groups.values()
    if not isinstance(group, Mapping) or group.get("targets") != ["Linear"]:
        found = group.get("targets") if isinstance(group, Mapping) else type(group).__name__
        raise InputError(FIELD.format("config_groups.targets"), found, "['Linear']")
    if settings.get("kv_cache_scheme") is not None or group.get("output_activations") is not None:
        raise InputError(FIELD.format("kv_cache_scheme"), "present", "weights and input activations alone")
    form = _one_of({"format": group.get("format") or settings.get("format")}, ("format",), FORMS)
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping):
        raise InputError(FIELD.format("weights"), type(weights).__name__, "the settings of the weights")
    _one_of({"type": "int", **weights}, ("type",), ("int",))
    strategy = _one_of(weights, ("strategy",), ("group", "channel"))
    if strategy == "channel":
        weights = {**weights, "group_size": -1}
    if inputs is None:
        return weights, False, form
    if not isinstance(inputs, Mapping) or {inputs.get("num_bits"), inputs.get("type", "int")} != {8, "int"}:
        raise InputError(FIELD.format("input_activations"), "other than int8", "none, or int8 for each token")
    _one_of({"dynamic": False, **inputs}, ("dynamic",), (True,))
    _one_of({"symmetric": True, **inputs}, ("symmetric",), (True,))
    _one_of(inputs, ("strategy",), ("token",))
    if not weights.get("symmetric", True):
        raise InputError(FIELD.format("weights.symmetric"), False, "true, where inputs are rounded to int8 as well")
    return weights, True, form


def _unsigned(signed: torch.Tensor) -> torch.Tensor:
    """int8 as codes uint8, 128 more."""
    return signed.contiguous().view(torch.uint8) ^ 0x80


def _exact(scale: torch.Tensor) -> torch.Tensor:
    """Scales as float16 where none changes by that, else as float32."""
    half = scale.half()
    return (half if torch.equal(half.float(), scale.float()) else scale.float()).clone().contiguous()


def _plain_zero(zero: torch.Tensor, bits: int) -> torch.Tensor | None:
    """None where every zero point is the middle: the matrix is symmetric."""
    return None if bool((zero == 2 ** (bits - 1)).all()) else zero.contiguous()


def _ordered(matrix: QuantizedMatrix, group_of: torch.Tensor | None) -> QuantizedMatrix:
    """The matrix with columns sorted by their group, from codes in the order of the inputs; group_of [depth]."""
    depth = matrix.shape[1]
    if group_of is None or len(group_of) == 0:
        return matrix
    wanted = torch.arange(depth) // matrix.group
    order = torch.argsort(group_of, stable=True)
    if not torch.equal(group_of[order].long(), wanted):
        raise InputError("model", "a g_idx with groups of other sizes", f"groups of {matrix.group} inputs")
    if torch.equal(order, torch.arange(depth)):
        return matrix
    return QuantizedMatrix(
        matrix.bits, matrix.group, matrix.codes[:, order].contiguous(), matrix.scale, zero=matrix.zero, order=order,
        activation_group=matrix.activation_group,
    )  # fmt: skip


def _one_of(settings: Mapping[str, Any], names: tuple[str, ...], accepted: tuple[Any, ...]) -> Any:
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not any(value == known and type(value) is type(known) for known in accepted):
        raise InputError(FIELD.format(names[0]), value, " or ".join(map(str, accepted)))
    return value


def _group_size(settings: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Columns that share a scale; None for -1, a scale a row."""
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != -1):
        raise InputError(FIELD.format(names[0]), value, "-1, or a whole number from 1 up")
    return None if value == -1 else value
