"""Calibration runs the real engine, of a tiny model here, and what it keeps predicts that engine's steps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from experiments.simulator import calibration
from ledger.device_profile import CLASSES
from ledger.hardware import Accelerator

CARD = Accelerator("this", "this machine", "", 8 << 30, "system", 2e10, {"fp32": 1e11}, None, None, (), "measured")


@pytest.mark.parametrize("settings", [{}, {"kv_dtype": "int8"}])
def test_a_calibration_has_profile_errors_and_host_times_and_comes_back_as_it_was(
    tiny_loaded: LoadedModel, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(calibration, "_ceilings", lambda *_: CARD)
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    rig = SimpleNamespace(loaded=lambda config: tiny_loaded, engine=lambda config: Engine(config, tiny_loaded))
    given = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "kv_memory_mib": 4, **settings}
    entry = calibration.calibrate_simulator(given, budget_s=0.1, rig=rig)
    assert entry["provenance"] == "measured" and entry["formats"]["kv_dtype"] == settings.get("kv_dtype", "fp32")
    assert entry["engine_host_s"]["step"] > 0 and entry["host_step_s"] >= entry["engine_host_s"]["step"]
    assert entry["fit"]["observations"] > 20 and entry["fit"]["cross_validated_error_pct"]["mean"] > 0
    assert set(entry["efficiencies"]) == set(CLASSES)
    calibration.store(entry)
    profile, found = calibration.profile_here(EngineConfig.from_settings(given))
    assert found == json.loads(json.dumps(entry)) and profile.calibration == "measured"
    assert profile.efficiency("linear").slowdown[0][0] == 1
