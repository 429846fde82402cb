"""Whole models with quantized weights: the compiled step against the torch decoder, and both against plain weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core_engine.kernels.options import StepOptions
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder, DecoderWeights
from core_engine.quant.linear import AnyWeight, unpacked
from core_engine.quant.matrix import Joined, rows_of
from tests.core_engine.quantized import FORMATS, ROUNDING
from tests.core_engine.test_compiled import STEPS, by_torch, config, empty_cache, models, row

pytestmark = pytest.mark.usefixtures("compiled_kernels")
SIZES = {"hidden_size": 96, "intermediate_size": 192, "num_attention_heads": 6, "head_dim": 16}
TIED = config(**SIZES)
OWN_HEAD = config(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=False)
MIXED = {"qkv": ("w4 nested (Q4_K)", "w4 nested (Q4_K)", "w6 nested (Q6_K)"), "output": ("w8 a row",),
         "gate_up": ("w4 zero", "w4 minimum (Q4_1)"), "down": ("w6 nested (Q6_K)",)}  # fmt: skip
BY_NAME = FORMATS | ROUNDING


def quantized(spec, weights, formats, head=None, embedding=None):
    """The weights with random codes: formats name the parts of each product; None leaves head or embedding plain."""
    keys = spec.num_kv_heads * spec.head_dim
    sizes = {"qkv": (spec.num_heads * spec.head_dim, keys, keys), "output": (spec.hidden_size,),
             "gate_up": (spec.intermediate_size,) * 2, "down": (spec.hidden_size,)}  # fmt: skip

    def of(layer, name):
        depth = getattr(layer, name).shape[1]
        parts = [BY_NAME[form](size, depth) for form, size in zip(formats[name], sizes[name], strict=True)]
        parts = [replace(part, scale=part.scale / 4) for part in parts]
        return parts[0] if len(parts) == 1 else Joined(tuple(parts))

    layers = tuple(replace(layer, **{name: of(layer, name) for name in sizes}) for layer in weights.layers)
    table = weights.embedding if embedding is None else BY_NAME[embedding](*weights.embedding.shape)
    if spec.tie_embeddings:
        return DecoderWeights(table, layers, weights.final_norm, table)
    return DecoderWeights(
        table, layers, weights.final_norm, weights.head if head is None else BY_NAME[head](*weights.head.shape)
    )


def dequantized(weights):
    """The same as plain float32 tensors."""

    def of(weight: AnyWeight):
        parts = [unpacked(weight)] if not isinstance(weight, Joined) else weight.parts
        return torch.cat([part if isinstance(part, torch.Tensor) else part.dequantized() for part in parts])

    names = ("qkv", "output", "gate_up", "down")
    layers = tuple(replace(layer, **{name: of(getattr(layer, name)) for name in names}) for layer in weights.layers)
    table = of(weights.embedding)
    return DecoderWeights(
        table, layers, weights.final_norm, table if weights.head is weights.embedding else of(weights.head)
    )


def made(settings, formats, dtype=torch.float32, **ends):
    plain, _ = models(settings, dtype)
    return plain.spec, quantized(plain.spec, plain.weights, formats, **ends)


def one(name):
    return {"qkv": (name,) * 3, "output": (name,), "gate_up": (name,) * 2, "down": (name,)}


MODELS = {
    **{name: (TIED, one(name), {"embedding": "w8 a row"}) for name in FORMATS},
    "as a Q4_K_M file": (OWN_HEAD, MIXED, {"embedding": "w4 nested (Q4_K)", "head": "w6 nested (Q6_K)"}),
    "plain tied head": (TIED, MIXED, {}),
    "plain embedding, int8 head": (OWN_HEAD, one("w4 group 32"), {"head": "w8 a row"}),
    "quantized embedding, plain head": (OWN_HEAD, one("w4 group 32"), {"embedding": "w6"}),
}
EXTREMES = {"all on": StepOptions(), "all off": StepOptions(one_call=False, fused_ops=False, flash=False, kv_splits=1)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", EXTREMES)
def test_logits_are_those_of_the_dequantized_weights(name, how):
    settings, formats, ends = MODELS[name]
    spec, weights = made(settings, formats, **ends)
    compiled, plain, by_codes = (
        CompiledDecoder(spec, weights),
        Decoder(spec, dequantized(weights)),
        Decoder(spec, weights),
    )
    caches = [empty_cache(spec, torch.float32) for _ in range(3)]
    for rows in STEPS:
        wanted = list(range(sum(row.count for row in rows)))
        expected = by_torch(plain, rows, wanted, caches[0])
        size = expected.abs().max()
        found = compiled.step(rows, wanted, caches[1], EXTREMES[how])
        torch.testing.assert_close(found / size, expected / size, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            by_torch(by_codes, rows, wanted, caches[2]) / size, expected / size, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", MODELS)
def test_greedy_token_ids_are_those_of_the_dequantized_weights(name):
    settings, formats, ends = MODELS[name]
    spec, weights = made(settings, formats, **ends)
    compiled, plain = CompiledDecoder(spec, weights), Decoder(spec, dequantized(weights))
    assert greedy(lambda *step: compiled.step(*step), spec) == greedy(lambda *step: by_torch(plain, *step), spec)


def greedy(step, spec, count=24):
    cache, tokens = empty_cache(spec, torch.float32), []
    rows = [row(0, 0, 7)]
    for _ in range(count):
        place = rows[0].count - 1
        tokens.append(int(step(rows, [place], cache).argmax()))
        rows = [replace(row(0, 7 + len(tokens) - 1, 1), tokens=(tokens[-1],))]
    return tokens


@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.parametrize("tokens", [1, 3, 5, 70])
def test_rounded_activations_are_torchs(name, tokens):
    """One layer's worth of differences in float32 may move a number over the edge between two integers: few do."""
    spec, weights = made(TIED | {"num_hidden_layers": 1}, one(name), embedding="w8 a row")
    ours, theirs = empty_cache(spec, torch.float32), empty_cache(spec, torch.float32)
    rows = [row(0, 0, tokens)]
    expected = by_torch(Decoder(spec, weights), rows, list(range(tokens)), theirs)
    found = CompiledDecoder(spec, weights).step(rows, list(range(tokens)), ours)
    plain = by_torch(Decoder(spec, dequantized(weights)), rows, list(range(tokens)), empty_cache(spec, torch.float32))
    apart = (found - expected).abs().mean()
    assert apart < 0.1 * (expected - plain).abs().mean()


def test_bf16_beside_quantized_products_is_nearer_to_float32_than_torchs():
    """Only norms, biases and KV are rounded; torch rounds every weight and what every operator gives."""
    ends = {"embedding": "w4 nested (Q4_K)", "head": "w6 nested (Q6_K)"}
    spec, weights = made(OWN_HEAD, MIXED, torch.bfloat16, **ends)
    assert weights.dtype is torch.bfloat16
    rounded, _ = models(OWN_HEAD, torch.bfloat16, torch.float32)
    exact = Decoder(spec, quantized(spec, rounded.weights, MIXED, **ends))
    rows, wanted = STEPS[0], list(range(76))
    reference = by_torch(exact, rows, wanted, empty_cache(spec, torch.float32))
    ours = CompiledDecoder(spec, weights).step(rows, wanted, empty_cache(spec, torch.bfloat16))
    theirs = by_torch(Decoder(spec, weights), rows, wanted, empty_cache(spec, torch.bfloat16))
    assert (ours - reference).abs().mean() < (theirs - reference).abs().mean()


def test_decoder_holds_packed_codes_and_counts_them():
    spec, weights = made(TIED, one("w4 group 32"), embedding="w8 a row")
    decoder = Decoder(spec, weights)
    query, keys, inner, hidden = 96, 32, 192, 96
    layer = (query + 2 * keys) * hidden + hidden * query + 3 * inner * hidden
    norms = 4 * (2 * hidden * spec.num_layers + hidden)
    body = spec.num_layers * layer
    head = 163 * hidden + 2 * 163
    assert decoder.weights.num_bytes() == body // 2 + 2 * body // 32 + norms + head


def test_rows_of_refuses_parts_of_other_sizes():
    spec, weights = made(TIED, one("w4 group 32"))
    with pytest.raises(ValueError, match="rows"):
        rows_of(weights.layers[0].qkv, (spec.hidden_size,) * 3)
