"""Quantizers over whole models: what is folded changes no product, what is calibrated sees what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.model.decoder import assemble
from core_engine.quant import methods
from core_engine.quant.awq import Levels
from core_engine.quant.layer_pass import LINEAR, PRODUCTS, LayerPass
from core_engine.quant.matrix import Joined, QuantizedMatrix
from ledger.errors import InputError
from tests.core_engine.conftest import load_fp32
from tests.core_engine.oracle import hidden_in_chunks, ragged_prompts
from tests.core_engine.quant.models import FAMILIES, TEXT, decoder, make, named_weights, plain, use_small_text

IDS = ragged_prompts((48,))[0]
LEVELS = Levels(4, 32, True)


def layer_of(named: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    at = f"model.layers.{index}."
    return {name.removeprefix(at): tensor for name, tensor in named.items() if name.startswith(at)}


@torch.inference_mode()
def through_layers(model: Path, named: dict[str, torch.Tensor]) -> torch.Tensor:
    """Normalised hidden states [tokens, hidden] of IDS by layer passes alone."""
    spec = load_fp32(model).decoder.spec
    run, states = LayerPass(spec, len(IDS)), named["model.embed_tokens.weight"][torch.tensor([IDS])]
    for index, window in enumerate(spec.windows):
        states = run.run(layer_of(named, index), window, states, lambda _, x: None)
    normed = torch.nn.functional.rms_norm(states, (states.shape[-1],), eps=spec.rms_norm_eps)
    return (normed * named["model.norm.weight"])[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layer_pass_computes_what_the_decoder_computes(family: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    named, _ = named_weights(tmp_path)
    expected = hidden_in_chunks(load_fp32(tmp_path).decoder, IDS, 16, 8)
    torch.testing.assert_close(through_layers(tmp_path, plain(named)), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["w8a8", "w4a16-awq"])
def test_what_is_folded_changes_no_product(
    family: str, weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(family, tmp_path)
    use_small_text(monkeypatch, tmp_path)
    # Scales are folded as ever, and nothing is rounded: the hidden states must be the plain model's.
    exact = lambda weight, *_: weight  # noqa: E731
    monkeypatch.setattr(methods, "_rounded", exact)
    monkeypatch.setattr(methods.awq, "clipped", exact)
    monkeypatch.setattr(methods, "round_to_nearest", exact)
    named, _ = named_weights_uncached(tmp_path, weights, monkeypatch)
    expected = hidden_in_chunks(load_fp32(tmp_path).decoder, IDS, 16, 8)
    torch.testing.assert_close(hidden_in_chunks(decoder(tmp_path, named), IDS, 16, 8), expected, atol=1e-4, rtol=1e-3)
    untouched, _ = named_weights(tmp_path)
    changed = f"model.layers.0.{methods.NORM_BEFORE[PRODUCTS[0]]}"
    assert not torch.equal(plain(named)[changed], plain(untouched)[changed])


def named_weights_uncached(model: Path, weights: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("core_engine.model.weights.cached", lambda path, make, report: make())
    return named_weights(model, weights=weights)


@pytest.mark.parametrize("weights", ["w8a16", "w8a8", "w4a16-rtn", "w4a16-awq", "w4a16-gptq"])
def test_every_linear_layer_is_quantized_and_nothing_else(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("qwen3", tmp_path)
    use_small_text(monkeypatch, tmp_path)
    named, cost = named_weights(tmp_path, weights=weights)
    quantized = {name for name, weight in named.items() if isinstance(weight, QuantizedMatrix)}
    assert quantized == {f"model.layers.{index}.{name}.weight" for index in range(3) for name in LINEAR}
    assert cost is not None and not cost.from_cache
    assert cost.calibration_tokens == (0 if weights in ("w8a16", "w4a16-rtn") else 16 * 64)
    made = assemble(load_fp32(tmp_path).decoder.spec, named)
    assert isinstance(made.layers[0].qkv, Joined) and made.layers[0].qkv.shape == (64 + 2 * 32, 64)
    shared = {weight.activation_group for weight in named.values() if isinstance(weight, QuantizedMatrix)}
    assert shared == ({32} if weights == "w8a8" else {None})


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gptq_keeps_hidden_states_of_the_calibrated_text_nearer_than_rounding(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(family, tmp_path)
    use_small_text(monkeypatch, tmp_path)
    loaded = load_fp32(tmp_path)
    ids = loaded.tokenizer.encode(TEXT)[640:700]
    exact, errors = hidden_in_chunks(loaded.decoder, ids, 16, 8), {}
    for weights in ("w4a16-rtn", "w4a16-gptq", "w8a16"):
        named, _ = named_weights(tmp_path, weights=weights)
        errors[weights] = float((hidden_in_chunks(decoder(tmp_path, named), ids, 16, 8) - exact).square().mean())
    assert errors["w8a16"] < 0.1 * errors["w4a16-rtn"]
    assert errors["w4a16-gptq"] < errors["w4a16-rtn"]


def test_gptq_rounds_each_product_on_what_the_rounded_ones_before_it_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("llama", tmp_path)
    named, _ = named_weights(tmp_path)
    spec = load_fp32(tmp_path).decoder.spec
    layer, seen = layer_of(plain(named), 0), {}
    states = named["model.embed_tokens.weight"][torch.tensor([IDS])]  # type: ignore[index]
    context = methods.LayerContext(spec, LayerPass(spec, len(IDS)), None, states)
    whole = methods.gptq

    def watched(weight: torch.Tensor, hessian: torch.Tensor, *rest: Any) -> QuantizedMatrix:
        seen[weight.shape] = hessian
        return whole(weight, hessian, *rest)

    monkeypatch.setattr(methods, "gptq", watched)
    found, after = methods.by_gptq(dict(layer), LEVELS, context)
    rounded = {**layer, **plain(found)}
    inputs: dict[tuple[str, ...], torch.Tensor] = {}
    again = context.run.run(rounded, None, states, lambda products, x: inputs.update({products: x}))
    torch.testing.assert_close(again, after)
    down = inputs[PRODUCTS[3]]
    torch.testing.assert_close(seen[torch.Size((64, 128))], down.t() @ down, rtol=1e-3, atol=1e-3)


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight.*not finite"):
        named_weights(tmp_path, weights="w4a16-rtn")
