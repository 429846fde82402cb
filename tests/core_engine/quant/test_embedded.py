"""The embedded model quantized: minutes, so apart. Its own blocks and 8 bits cost little.

That GPTQ beats rounding to nearest is not held here: these weights were 4-bit on another grid before, and what a second
grid does to them says nothing of a quantizer. Where the claim has to hold is in test_quantizers.py and test_methods.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core_engine.quant.layer_pass import LayerPass
from core_engine.quant.quantize import EMBEDDING
from tests.core_engine.conftest import load_fp32
from tests.core_engine.quant.models import named_weights, plain

pytestmark = pytest.mark.slow


def loss(weights: dict[str, torch.Tensor], model: Path, ids: list[int]) -> float:
    """Mean negative log-likelihood of ids under weights."""
    spec = load_fp32(model).decoder.spec
    run, states = LayerPass(spec, len(ids)), weights[EMBEDDING][torch.tensor([ids])]
    with torch.inference_mode():
        for index, window in enumerate(spec.windows):
            at = f"model.layers.{index}."
            layer = {name.removeprefix(at): tensor for name, tensor in weights.items() if name.startswith(at)}
            states = run.run(layer, window, states, lambda _, x: None)
        normed = torch.nn.functional.rms_norm(states[0], (spec.hidden_size,), eps=spec.rms_norm_eps)
        logits = normed[:-1] * weights["model.norm.weight"] @ weights[EMBEDDING].t()
        return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])))


def test_its_own_blocks_and_8_bits_cost_little_and_another_4_bit_grid_much(embedded_dir: Path) -> None:
    text = Path(__file__).resolve().parents[3].joinpath("docs/architecture.md").read_text("utf-8")
    ids = load_fp32(embedded_dir).tokenizer.encode(text)[:1024]
    losses = {}
    for weights in ("none", "as-stored", "w8a16", "w4a16-rtn", "w4a16-gptq"):
        group = {"weight_group": "64"} if weights.startswith("w4") else {}
        source = Path("embedded") if weights == "as-stored" else embedded_dir  # the file, and what it was converted to
        named, _ = named_weights(source, weights=weights, **group)
        losses[weights] = loss(plain(named), embedded_dir, ids)
    assert abs(losses["as-stored"] - losses["none"]) < 1e-3  # the same numbers
    assert abs(losses["w8a16"] - losses["none"]) < 0.01
    for weights in ("w4a16-rtn", "w4a16-gptq"):
        assert 0.02 < losses[weights] - losses["none"] < 1.0, losses
