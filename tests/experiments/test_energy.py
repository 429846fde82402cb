"""Energy of a run: which source, over which span, and None with a reason instead of a guess."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import loadgen
from experiments.metrics import compute_metrics
from experiments.metrics.energy import COUNTER, TRAPEZOID, energy
from tests.core_engine.nvml_fake import FakeNvml, install
from tests.experiments.fakes import VirtualClock
from tests.experiments.test_loadgen import engine_of, workload_of

S = 1_000_000_000


def record(t_s: list[float], *, ended: str | None = None, **samples: list[float | None]) -> dict[str, Any]:
    """A run from 0 to 2 s with 10 tokens, and readings at t_s."""
    request = {
        "arrival_ns": 0, "emissions": [[S, 4], [2 * S, 6]], "error": None, "finish_reason": "length", "finish_ns": 2 * S
    }  # fmt: skip
    named = {name: samples.get(name) for name in ("power_w", "energy_j")}
    missing = {name: "Not Supported" for name, values in named.items() if values is None}
    telemetry = {
        "absent": None, "source": "NVML", "t_ns": [round(t * S) for t in t_s], "samples": named, "missing": missing,
        "ended": ended,
    }  # fmt: skip
    return {"requests": [request], "telemetry": telemetry}


def test_power_is_integrated_by_the_trapezoid_rule_between_first_arrival_and_last_token():
    found = energy(record([-0.5, 0.5, 1.5, 2.5], power_w=[100, 300, 300, 100]))
    # 200 W at 0 and at 2 s by interpolation: 125 + 300 + 125 J
    assert found == {
        "joules": pytest.approx(550), "tokens_per_joule": pytest.approx(10 / 550),
        "mean_power_w": pytest.approx(275), "source": TRAPEZOID, "reason": None,
    }  # fmt: skip


def test_the_energy_counter_is_taken_where_there_is_one():
    found = energy(record([-0.5, 0.5, 1.5, 2.5], power_w=[1, 1, 1, 1], energy_j=[1000, 1100, 1300, 1400]))
    assert found["source"] == COUNTER and found["joules"] == pytest.approx(300)


def test_a_counter_with_a_hole_gives_way_to_power():
    found = energy(record([-0.5, 0.5, 1.5, 2.5], power_w=[100] * 4, energy_j=[1000, 1100, None, None]))
    assert found["source"] == TRAPEZOID and found["joules"] == pytest.approx(200)


def test_readings_that_end_before_the_run_give_no_figure():
    found = energy(record([-0.1, 0.4, 0.9], power_w=[100] * 3, ended="NVML: GPU is lost"))
    assert found["joules"] is None and found["tokens_per_joule"] is None
    assert found["reason"] == "readings end at 0.9 of 2.0 s (NVML: GPU is lost)"


def test_a_gap_is_not_bridged():
    found = energy(record([-0.1, 0.1, 0.3, 0.5, 2.1], power_w=[100, 100, 100, 100, 100]))
    assert found["joules"] is None and found["reason"] == "no reading for 1.6 s"


def test_a_card_without_power_readings_says_so():
    assert energy(record([-0.1, 2.1]))["reason"] == "this card reports no power: Not Supported"


def test_a_run_without_tokens_and_one_from_before_have_no_energy():
    found = record([0, 2], power_w=[100, 100])
    assert energy({**found, "requests": []})["reason"] == "no request got a token"
    assert energy({"requests": found["requests"]})["reason"] == "recorded before telemetry was kept"


def test_a_run_on_a_cpu_has_none_and_says_why():
    clock = VirtualClock()
    found = compute_metrics(loadgen.run(engine_of(clock), workload_of((4, 3, 0.0))))
    assert found["energy"]["joules"] is None and found["energy"]["source"] is None
    assert found["energy"]["reason"].startswith("no CUDA device")


def test_a_run_on_a_device_keeps_samples_on_its_own_clock(monkeypatch: pytest.MonkeyPatch):
    import torch

    install(monkeypatch, FakeNvml())
    clock = VirtualClock()
    engine = engine_of(clock)
    engine.loaded.weights.device = torch.device("cuda", 0)
    monkeypatch.setattr(engine, "record", lambda: _on_a_cpu(engine))
    made = loadgen.run(engine, workload_of((4, 3, 0.0)))
    telemetry = made["telemetry"]
    assert telemetry["t_ns"][0] == 0  # sampled right before the first arrival, at the record's 0
    assert telemetry["t_ns"][-1] >= made["steps"][-1]["commit_end_ns"]
    found = compute_metrics(made)["energy"]
    assert found["source"] == COUNTER and found["joules"] > 0 and found["tokens_per_joule"] > 0


def _on_a_cpu(engine: Any) -> dict[str, Any]:
    """The engine's record without readings of a device that is not there."""
    import torch

    from core_engine.live import record

    engine.loaded.weights.device = torch.device("cpu")
    return record(engine)
