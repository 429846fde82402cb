"""A quantized model as a directory that other engines read too: safetensors in the layout of compressed-tensors.

4 bits and w8a16 are `pack-quantized` (int32 words, the lowest bits first), w8a8 `int-quantized` (int8, inputs rounded
for each token). What that layout has no name for is beside it in config.json under a key of our own: how many inputs of
a token share a scale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core_engine.quant.checkpoints import OWN, packed
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import Named
from core_engine.quant.scheme import GPTQ, W8A8, Scheme

TORCH_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def write_checkpoint(directory: Path, config: Mapping[str, Any], named: Named, scheme: Scheme) -> int:
    """Write model.safetensors and config.json into a directory that is there; returns the bytes of the tensors.

    OSError when they can't be written.
    """
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    dtype = torch.float32
    for name, weight in named.items():
        if isinstance(weight, QuantizedMatrix):
            tensors |= {f"{name.removesuffix('weight')}{part}": value for part, value in _parts(weight, scheme).items()}
        else:
            tensors[name], dtype = weight.contiguous(), weight.dtype
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    settings = {"quantization_config": quantization_config(scheme), "torch_dtype": TORCH_DTYPES[dtype]}
    if scheme.weights == W8A8:
        shared = {weight.activation_group for weight in named.values() if isinstance(weight, QuantizedMatrix)}
        settings[OWN] = {"activation_group": min(group for group in shared if group is not None)}
    (directory / "config.json").write_text(json.dumps({**config, **settings}, indent=1) + "\n", "utf-8")
    return sum(tensor.nbytes for tensor in tensors.values())


def quantization_config(scheme: Scheme) -> dict[str, Any]:
    """The `quantization_config` of config.json."""
    levels = scheme.levels
    weights: dict[str, Any] = {
        "num_bits": 8 if levels is None else levels.bits,
        "type": "int",
        "symmetric": levels is None or levels.symmetric,
        "strategy": "channel" if levels is None else "group",
        "group_size": None if levels is None else levels.group,
        "dynamic": False,
        "actorder": "group" if scheme.weights == GPTQ else None,
    }
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    form = _form(scheme)
    group = {
        "targets": ["Linear"], "weights": weights, "input_activations": inputs if scheme.weights == W8A8 else None,
        "output_activations": None, "format": form,
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
    }  # fmt: skip


def _form(scheme: Scheme) -> str:
    return "int-quantized" if scheme.weights == W8A8 else "pack-quantized"


def _parts(matrix: QuantizedMatrix, scheme: Scheme) -> dict[str, torch.Tensor]:
    """The tensors of one module by their suffix."""
    codes, found = matrix.codes, {"weight_scale": matrix.scale.contiguous()}
    if matrix.order is not None:
        codes = torch.empty_like(codes)
        codes[:, matrix.order] = matrix.codes
        group_of = torch.empty(codes.shape[1], dtype=torch.int32)
        group_of[matrix.order] = (torch.arange(codes.shape[1]) // matrix.group).int()
        found["weight_g_idx"] = group_of
    if _form(scheme) == "int-quantized":
        return found | {"weight": (codes ^ 0x80).view(torch.int8)}
    if matrix.zero is not None:
        found["weight_zero_point"] = packed(matrix.zero.t(), matrix.bits).t().contiguous()
    return found | {"weight_packed": packed(codes, matrix.bits), "weight_shape": torch.tensor(matrix.shape)}
