"""`trilemma simulate` and `calibrate --simulator` on the command line: JSON, labels, exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.cli import run
from experiments.simulator import calibration


def test_simulate_prints_metrics_with_their_label(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "llama-3.1-8b", "--gpu", "h100", "--requests", "6", "--rate", "20", "--replicas", "2"]
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"] == "simulated" and found["completed"] == 6 and found["simulated"]["devices"] == 2
    assert run(command) == 0
    assert "simulated" in capsys.readouterr().out


def test_wrong_input_is_2_and_a_machine_that_is_not_calibrated_is_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    assert run(["simulate", "llama-3.1-8b", "--gpu", "abacus"]) == 2
    assert run(["simulate", "llama-3.1-8b", "--gpu", "h100", "--tp", "two"]) == 2
    assert run(["simulate", "llama-3.1-8b", "--gpu", "h100", "--set", "tensor_parallel=2"]) == 2
    assert run(["calibrate", "--set", "kv_dtype=int8"]) == 2
    assert run(["simulate"]) == 3
    assert "calibrate --simulator" in capsys.readouterr().err
