"""The enlarged target says what the model says, with really more work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model import loader
from core_engine.model.embedded import ENLARGED as MODEL
from core_engine.model.enlarged import LABEL, TIMES
from core_engine.model.loader import load_model
from core_engine.sampling_params import SamplingParams
from ledger.errors import InputError


@pytest.mark.parametrize("kernels", ["torch", "compiled"])
def test_the_enlarged_model_gives_the_same_ids_and_holds_the_wider_weights(
    tiny: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    monkeypatch.setattr(loader, "ensure_embedded", lambda _: tiny[0])
    monkeypatch.setattr(loader, "embedded_directory", lambda: tiny[0])
    params, answers, held = SamplingParams(max_tokens=20, ignore_eos=True), [], []
    for model in ("embedded", MODEL):
        config = EngineConfig.from_settings({"model": model, "dtype": "fp32", "kernels": kernels, "threads": 1})
        loaded = load_model(config)
        if loaded.kernels.kernels != kernels:
            pytest.skip(loaded.kernels.kernels_reason)
        engine = Engine(config, loaded)
        answers.append(engine.generate([[5, 6, 7], [9] * 20], params))
        held.append(loaded.weights.num_bytes())
        predicted = {account.name: account.bytes for account in engine.predicted.accounts}
        assert predicted["weights"] == held[-1]
    assert [done.token_ids for done in answers[0]] == [done.token_ids for done in answers[1]]
    spec = loaded.decoder.spec
    assert spec.intermediate_size == TIMES * 96
    assert held[1] - held[0] >= 3 * spec.num_layers * spec.hidden_size * (TIMES - 1) * 96 * 4
    assert LABEL in loaded.name


def test_its_matrices_are_not_quantized() -> None:
    with pytest.raises(InputError, match="embedded-wide"):
        EngineConfig.from_settings({"model": MODEL, "weights": "w8a16"})
