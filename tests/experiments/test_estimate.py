"""The time an experiment is expected to take, before it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.cli.progress import duration, estimate_line
from experiments.compare import run_comparison
from experiments.estimate import Estimate, Pace, expected_run_s, pace_of
from experiments.workloads import Workload, WorkloadRequest
from tests.experiments.fakes import FakeRig, VirtualClock

MS = 1_000_000


def workload(*requests: tuple[int, int, float]) -> Workload:
    """Requests as (prompt tokens, output tokens, arrival in s)."""
    drawn = tuple(WorkloadRequest((0,) * p, o, o, round(at * 1e9)) for p, o, at in requests)
    return Workload("made", 0, drawn, None, "burst")


def step(ms: float, prefill: int, decode: int) -> dict[str, Any]:
    return {"plan_start_ns": 0, "commit_end_ns": round(ms * MS), "prefill_tokens": prefill, "decode_tokens": decode,
            "num_seqs": decode + (prefill > 0)}  # fmt: skip


def test_the_pace_tells_prefill_from_decode():
    pace = pace_of([step(100, 50, 0), step(60, 25, 3), step(10, 0, 4), step(10, 0, 4), step(12, 0, 2)])
    assert pace == Pace(pytest.approx(0.150 / 75), pytest.approx(0.010), 4)
    assert pace_of([step(100, 50, 0)]) is None
    assert pace_of([]) is None


def test_a_schedule_is_replayed_with_its_arrivals_and_seats():
    pace = Pace(prefill_s_per_token=0.001, decode_s=0.01, rows=2)
    assert expected_run_s(workload((100, 11, 0)), pace, 8) == pytest.approx(0.1 + 0.1)
    assert expected_run_s(workload((100, 11, 0), (100, 11, 0)), pace, 8) == pytest.approx(0.2 + 0.1)
    assert expected_run_s(workload((100, 11, 0), (100, 11, 0)), pace, 1) == pytest.approx(0.4)
    assert expected_run_s(workload((100, 11, 0), (100, 11, 5)), pace, 8) == pytest.approx(5.2)
    closed = replace(workload((100, 11, 0), (100, 11, 0)), concurrency=1)
    assert expected_run_s(closed, pace, 8) == pytest.approx(0.4)
    four = workload(*[(0, 11, 0)] * 4)
    assert expected_run_s(four, pace, 8) == pytest.approx(0.2)  # twice the rows, twice the time


def test_a_comparison_says_what_it_will_take_and_is_about_right(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = VirtualClock(), []
    spec = {"variable": "seed", "values": [0, 1], "repeats": "auto", "workload": "equal", "num_requests": 4}
    result = run_comparison(spec, None, "r", seen.append, rig=FakeRig(clock))
    estimate = next(live["estimate"] for live in seen if live["estimate"])
    first = next(live for live in seen if live["estimate"])
    assert first["phase"] == "warmup" and first["eta_s"] == estimate["total_s"]
    assert (estimate["repeats"], estimate["most_repeats"], estimate["provenance"]) == (3, 20, "estimated")
    taken_s = result["arms"][0]["metrics"]["duration_s"]
    assert estimate["run_s"][0] == pytest.approx(taken_s, rel=0.25)


def test_the_estimate_is_one_line():
    line = estimate_line(Estimate((10.0, 20.0), 3, 20).to_json())
    assert line == "about 90 s from now (estimated from the warm-up: 6 runs of 10 s and 20 s each); " \
                   "up to 10 min if it takes 20 repeats"  # fmt: skip
    assert "up to" not in estimate_line(Estimate((10.0, 10.0), 5, 5).to_json())
    assert [duration(s) for s in (0.5, 90, 600, 9000)] == ["0.5 s", "90 s", "10 min", "2.5 h"]
