"""What disturbs steps, and whether the machine is as fast as when it was calibrated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments.simulator import calibration


def test_steady_steps_are_not_disturbed_and_one_slow_repeat_in_ten_is_counted_by_its_share() -> None:
    assert calibration.disturbance([[0.01] * 9, [0.5] * 9]) == 1.0
    assert calibration.disturbance([[0.01] * 9 + [0.03]]) == pytest.approx((9 + 3) / 10)


def test_one_execution_that_hung_counts_as_a_bounded_multiple() -> None:
    assert calibration.disturbance([[0.01] * 9 + [60.0]]) == pytest.approx((9 + calibration.LONGEST_DISTURBED) / 10)


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.3])
def test_drift_is_the_ratio_of_todays_steps_to_the_calibrations(monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    engine: Any = SimpleNamespace(config=EngineConfig(), pool=SimpleNamespace(num_blocks=512), max_position=2048)
    steps = calibration._design_of(engine)
    known = {step.group: 0.001 * (place + 1) for place, step in enumerate(steps)}
    by_plan = {calibration._plan(step, engine.config.block_size): known[step.group] for step in steps}
    monkeypatch.setattr(calibration, "_timed", lambda _, plan: slower * by_plan[plan])
    entry = {"steps_s": known, "disturbance": 1.0}
    probes = [calibration.probe(entry, engine, budget_s=0) for _ in range(2)]
    assert len(probes[0]) == calibration.PROBES
    assert calibration.drift(entry, probes) == pytest.approx(slower)


def test_drift_counts_disturbances_as_the_calibration_did() -> None:
    entry = {"steps_s": {"one": 0.010, "other": 0.020}, "disturbance": 1.2}
    as_then = {"one": [0.010] * 4 + [0.020], "other": [0.020] * 4 + [0.040]}
    assert calibration.drift(entry, [as_then, as_then]) == pytest.approx(1.0)
    assert calibration.drift(entry, [{"one": [0.010] * 5, "other": [0.020] * 5}]) == pytest.approx(1 / 1.2)
