"""Tiny models that groups divide, a calibration text for them, and quantized weights made plain again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.model.decoder import Decoder, assemble
from core_engine.model.loader import open_model
from core_engine.model.weights import Wanted
from core_engine.quant import calibrate
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import Cost, Named
from core_engine.variables import W4A16
from tests.core_engine.conftest import make_tiny

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
FAMILIES = ["llama", "llama-biases", "mistral", "qwen2", "qwen3"]
TEXT = " ".join(f"Line {number} of a text that calibrates: {number * number % 97} apples." for number in range(400))


def make(family: str, directory: Path, **changes: Any) -> None:
    """A tiny model of a family with widths of 64 and 128."""
    own = {"head_dim": 16} if family in ("mistral", "qwen3") else {}
    make_tiny(family, directory, **{**SIZES, **own, **changes})


def use_small_text(monkeypatch: pytest.MonkeyPatch, directory: Path, sequence: int = 64) -> None:
    """A short calibration text in short sequences, and a cache of the test's own."""
    path = directory / "calibration.txt"
    path.write_text(TEXT)
    monkeypatch.setattr(calibrate, "TEXT_FILE", path)
    monkeypatch.setattr(calibrate, "SEQUENCE", sequence)
    monkeypatch.setenv("TRILEMMA_CACHE", str(directory / "cache"))


def in_small_groups(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with groups of 32 where weights have groups of their own."""
    return {"weight_group": "32", **settings} if settings.get("weights") in W4A16 else settings


def named_weights(model: Path, **settings: Any) -> tuple[Named, Cost | None]:
    """What the loader hands to the decoder, and the cost."""
    opened = open_model(EngineConfig.from_settings({"model": str(model), **in_small_groups(settings)}))
    wanted = Wanted(opened.scheme, torch.device("cpu"), torch.float32)
    return opened.weights(wanted, opened.tokenizer(), None, lambda _: None)


def plain(named: Named) -> dict[str, torch.Tensor]:
    """Every weight as float32."""
    return {
        name: weight.dequantized() if isinstance(weight, QuantizedMatrix) else weight for name, weight in named.items()
    }


def decoder(model: Path, named: Named) -> Decoder:
    """A decoder of these weights made plain."""
    spec = open_model(EngineConfig.from_settings({"model": str(model)})).spec
    return Decoder(spec, assemble(spec, plain(named)))
