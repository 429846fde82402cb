"""From a model's plain tensors to quantized ones, layer by layer: what is held beside the result is one layer.

Owns the order of work and what is told of it (progress, cost). The quantizers are in methods.py, the files in cache.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from core_engine.model.spec import DecoderSpec
from core_engine.quant import methods
from core_engine.quant.awq import Levels
from core_engine.quant.layer_pass import LINEAR, LayerPass
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import round_to_nearest
from core_engine.quant.scheme import AWQ, GPTQ, INT8, RTN, W8A8, W8A16, Scheme
from ledger.errors import InputError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Named = dict[str, torch.Tensor | QuantizedMatrix]
Rounding = Callable[[Mapping[str, torch.Tensor], Levels | None], methods.QuantizedLayer]
# What looks at the weights alone, and what also at a calibration text.
DATA_FREE: Mapping[str, Rounding] = {
    W8A16: methods.rounded,
    RTN: methods.rounded,
}
CALIBRATED: Mapping[str, methods.Calibrated] = {
    AWQ: methods.by_awq,
    GPTQ: methods.by_gptq,
    W8A8: methods.by_smoothquant,
}


class TensorSource(Protocol):
    """Plain tensors by Hugging Face's names, read when they are asked for."""

    def names(self) -> list[str]:
        """All of them."""

    def plain(self, name: str) -> torch.Tensor:
        """float32, whatever format it is stored in."""


@dataclass(frozen=True)
class Cost:
    """What quantizing took: seconds, tokens of calibration text (0 without), whether it was read from a cache now."""

    seconds: float
    calibration_tokens: int = 0
    from_cache: bool = False


def quantized_layers(
    spec: DecoderSpec,
    source: TensorSource,
    scheme: Scheme,
    sequences: torch.Tensor | None,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[Named, Cost]:
    """Every tensor of the layers, linear layers as `scheme` says; the rest of the model is not in it.

    sequences: token ids [count, length] for what is calibrated. InputError for a tensor that is missing, or not finite.
    """
    began_s = time.perf_counter()
    states, run = None, None
    with torch.inference_mode():
        if scheme.calibrated and sequences is not None:
            states = torch.nn.functional.embedding(sequences, source.plain(EMBEDDING))
            run = LayerPass(spec, sequences.shape[1])
        found: Named = {}
        for index, window in enumerate(spec.windows):
            at = f"model.layers.{index}."
            layer = _layer(source, at)
            if run is None or states is None:
                made = DATA_FREE[scheme.weights](layer, scheme.levels)
            else:
                report(f"Quantizing layer {index + 1} of {spec.num_layers} ({scheme.weights})")
                context = methods.LayerContext(spec, run, window, states)
                made, states = CALIBRATED[scheme.weights](layer, scheme.levels, context)
            found |= {at + name: tensor for name, tensor in made.items()}
    tokens = 0 if sequences is None else sequences.numel()
    return found, Cost(time.perf_counter() - began_s, tokens)


def quantized_head(weight: torch.Tensor, scheme: Scheme) -> torch.Tensor | QuantizedMatrix:
    """The head (or tied embedding) [vocab_size, hidden] as `scheme` says: 8 bits with a scale a row, or as it is."""
    return round_to_nearest(weight, 8, weight.shape[1], True) if scheme.head == INT8 else weight


def _layer(source: TensorSource, at: str) -> dict[str, torch.Tensor]:
    layer = {name.removeprefix(at): source.plain(name) for name in source.names() if name.startswith(at)}
    for name in LINEAR:
        if f"{name}.weight" not in layer:
            raise InputError("model", f"no tensor {at}{name}.weight", "weights with every parameter of the config")
    for name, tensor in layer.items():
        if not tensor.isfinite().all():
            raise InputError("model", f"{at}{name} with values that are not finite", "finite weights")
    return layer
