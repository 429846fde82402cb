"""The quantizers as a pass over a layer: which weights take the scales, what is rounded, and on what inputs.

A layer goes in as plain float32 tensors by Hugging Face's names within it; the same names come out, linear layers as
QuantizedMatrix, norms and biases with what was folded into them. All of them leave the plain products as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from core_engine.model.spec import DecoderSpec
from core_engine.quant import awq, smoothquant
from core_engine.quant.awq import Levels
from core_engine.quant.calibrate import InputSums
from core_engine.quant.gptq import gptq
from core_engine.quant.layer_pass import DOWN, LINEAR, NORM_BEFORE, OUTPUT, PRODUCTS, Layer, LayerPass
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.rtn import round_to_nearest

UNCLIPPED = ("self_attn.q_proj", "self_attn.k_proj")  # their products meet in a dot product, which a clip of both harms
SMOOTHING = 0.5  # the paper's migration strength
ACTIVATION_GROUP = 32  # of inputs that share a scale; see activation_group

QuantizedLayer = dict[str, torch.Tensor | QuantizedMatrix]


@dataclass(frozen=True)
class LayerContext:
    """What a calibrated quantizer needs of a layer beside its weights. states are the residuals before it."""

    spec: DecoderSpec
    run: LayerPass
    window: int | None
    states: torch.Tensor


Calibrated = Callable[[Layer, Levels | None, LayerContext], tuple[QuantizedLayer, torch.Tensor]]
"""(layer, levels, context) -> the quantized layer, and the residuals after it that the next layer is calibrated on."""


def rounded(layer: Mapping[str, torch.Tensor], levels: Levels | None) -> QuantizedLayer:
    """RTN: every linear layer by its own extremes. levels None: 8 bits, a scale a row."""
    found: QuantizedLayer = dict(layer)
    for name in _weights(LINEAR):
        found[name] = _rounded(layer[name], levels)
    return found


def by_awq(layer: Layer, levels: Levels | None, context: LayerContext) -> tuple[QuantizedLayer, torch.Tensor]:
    """AWQ on the inputs of the unquantized model, as its authors calibrate."""
    if levels is None:
        raise TypeError("AWQ without levels")  # a fault of the scheme, not of the user
    sums, states = _plain_sums(layer, context)
    for products in PRODUCTS:
        seen = sums[products]
        mean_abs = _shared_by_query_heads(seen.mean_abs, context.spec) if products is OUTPUT else seen.mean_abs
        weight = torch.cat([layer[name] for name in _weights(products)])
        scales, _ = awq.input_scales(weight, seen.hessian, mean_abs, levels)
        _fold(layer, products, scales, context.spec)
        sums[products] = seen.divided(scales)
    found: QuantizedLayer = dict(layer)
    for products, seen in sums.items():
        for name in products:
            weight = layer[f"{name}.weight"]
            found[f"{name}.weight"] = (
                _rounded(weight, levels) if name in UNCLIPPED else awq.clipped(weight, seen.hessian, levels)
            )
    return found, states


def by_gptq(layer: Layer, levels: Levels | None, context: LayerContext) -> tuple[QuantizedLayer, torch.Tensor]:
    """GPTQ, each product on the inputs that the rounded ones before it give, in this layer and in those before."""
    if levels is None:
        raise TypeError("GPTQ without levels")  # a fault of the scheme, not of the user
    found: QuantizedLayer = dict(layer)

    def visit(products: tuple[str, ...], x: torch.Tensor) -> None:
        names = _weights(products)
        stacked = torch.cat([layer[name] for name in names])
        whole = gptq(stacked, InputSums.of(x).hessian, levels.bits, levels.group, levels.symmetric)
        sizes = [len(layer[name]) for name in names]
        for name, part in zip(names, _split_rows(whole, sizes), strict=True):
            found[name] = part
            layer[name] = part.dequantized()

    return found, context.run.run(layer, context.window, context.states, visit)


def by_smoothquant(layer: Layer, levels: Levels | None, context: LayerContext) -> tuple[QuantizedLayer, torch.Tensor]:
    """8-bit weights and activations: what follows a norm is smoothed, every row rounded. levels is not used."""
    largest: dict[tuple[str, ...], torch.Tensor] = {}

    def visit(products: tuple[str, ...], x: torch.Tensor) -> None:
        if products in NORM_BEFORE:
            largest[products] = x.abs().amax(0)

    states = context.run.run(layer, context.window, context.states, visit)
    for products, max_abs in largest.items():
        weight = torch.cat([layer[name] for name in _weights(products)])
        _fold(layer, products, smoothquant.smoothing_scales(weight, max_abs, SMOOTHING), context.spec)
    found: QuantizedLayer = dict(layer)
    for name in _weights(LINEAR):
        depth = layer[name].shape[1]
        found[name] = round_to_nearest(layer[name], 8, depth, True, activation_group(depth))
    return found, states


def activation_group(depth: int) -> int:
    """Inputs of a token that share a dynamic scale.

    32, since one scale a token costs the embedded model 4 to 5 % of perplexity and groups of 32 less than 1 %; the
    whole token where 32 does not divide the depth.
    """
    return ACTIVATION_GROUP if depth % ACTIVATION_GROUP == 0 else depth


def _plain_sums(layer: Layer, context: LayerContext) -> tuple[dict[tuple[str, ...], InputSums], torch.Tensor]:
    sums: dict[tuple[str, ...], InputSums] = {}

    def visit(products: tuple[str, ...], x: torch.Tensor) -> None:
        sums[products] = InputSums.of(x)

    return sums, context.run.run(layer, context.window, context.states, visit)


def _fold(layer: Layer, products: tuple[str, ...], scales: torch.Tensor, spec: DecoderSpec) -> None:
    """Multiply the weights of `products` by scales of their inputs [depth], and divide what makes these inputs.

    That is the norm before q, k, v and before gate and up; the rows of v before the output projection (scales alike for
    all query heads of a key-value head); the rows of up before down. All of them are linear in what they give.
    """
    for name in _weights(products):
        layer[name] = layer[name] * scales
    if products in NORM_BEFORE:
        layer[NORM_BEFORE[products]] = layer[NORM_BEFORE[products]] / scales
        return
    maker, rows = ("mlp.up_proj", scales) if products is DOWN else ("self_attn.v_proj", _of_kv_heads(scales, spec))
    layer[f"{maker}.weight"] = layer[f"{maker}.weight"] / rows[:, None]
    if f"{maker}.bias" in layer:
        layer[f"{maker}.bias"] = layer[f"{maker}.bias"] / rows


def _shared_by_query_heads(values: torch.Tensor, spec: DecoderSpec) -> torch.Tensor:
    """values [heads * head_dim] with the mean over the query heads of each key-value head in the place of theirs."""
    heads = values.view(spec.num_kv_heads, -1, spec.head_dim)
    return heads.mean(1, keepdim=True).expand_as(heads).flatten()


def _of_kv_heads(scales: torch.Tensor, spec: DecoderSpec) -> torch.Tensor:
    """Scales [heads * head_dim], alike for the query heads of a key-value head, as [kv_heads * head_dim]."""
    return scales.view(spec.num_kv_heads, -1, spec.head_dim)[:, 0].flatten()


def _split_rows(matrix: QuantizedMatrix, sizes: list[int]) -> list[QuantizedMatrix]:
    codes, scales = matrix.codes.split(sizes), matrix.scale.split(sizes)
    zeros = [None] * len(sizes) if matrix.zero is None else list(matrix.zero.split(sizes))
    return [
        QuantizedMatrix(matrix.bits, matrix.group, *part, zero=zero, order=matrix.order)
        for part, zero in zip(zip(codes, scales, strict=True), zeros, strict=True)
    ]


def _rounded(weight: torch.Tensor, levels: Levels | None) -> QuantizedMatrix:
    if levels is None:
        return round_to_nearest(weight, 8, weight.shape[1], True)
    return round_to_nearest(weight, levels.bits, levels.group, levels.symmetric)


def _weights(products: tuple[str, ...]) -> list[str]:
    return [f"{name}.weight" for name in products]
