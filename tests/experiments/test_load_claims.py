"""C01, C35, C36, C44 and C46: judged on sweeps of the fake engine and on changes made for each verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from experiments import loadgen
from experiments.claims import both_knees, capped_batch, load_and_latency, run_claim, two_loads
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED
from experiments.claims.runner import CHECKED_BY_SWEEP
from experiments.claims.sweep_rows import Change
from experiments.sweep import measure as measure_module
from experiments.sweep.run import run_sweep
from tests.experiments.fakes import FakeRig, VirtualClock

SMALL = {"num_requests": 8, "repeats": 2}
UP, DOWN, SAME = Change(2.0, 1.8, 2.2), Change(0.5, 0.4, 0.6), Change(1.001, 0.99, 1.01)
MAYBE, ONCE = Change(1.3, 0.9, 1.9), Change(2.0, None, None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the engine; its specs are kept in `seen`."""
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    monkeypatch.setattr(measure_module, "machine", lambda: {"cores": 2, "load_before": 0.0})
    seen: list[dict[str, Any]] = []

    def sweep(spec: dict[str, Any]) -> Mapping[str, Any]:
        seen.append(spec)
        short = {"max_tokens_cap": 64 if "batching" in (spec["over"], *spec["settings"]) else 8, "duration_s": 1.0}
        return run_sweep({**spec, **short}, None, "fake", rig=FakeRig(clock, noise=0.01))

    sweep.seen = seen  # type: ignore[attr-defined]
    return sweep


def test_c01_tokens_and_gaps_both_rise_on_an_engine_that_batches(measured: Any) -> None:
    found = run_claim("C01", sweep=measured, options=SMALL)
    assert found["verdict"] == HOLDS and len(found["evidence"]) == 4
    rates = [row["output_tokens_per_s"] for row in found["evidence"]]
    assert rates == sorted(rates)
    costs = [row["cost_per_million_output_tokens"] for row in found["evidence"]]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("throughput", "itl", "steps", "verdict"),
    [
        (UP, UP, (UP, UP, UP), HOLDS),
        (UP, UP, (UP, UP, SAME), LIMITED),
        (UP, SAME, (UP, UP, UP), FAILS),
        (DOWN, UP, (UP, UP, DOWN), FAILS),
        (MAYBE, UP, (UP, UP, UP), UNDECIDED),
        (ONCE, ONCE, (ONCE, ONCE, ONCE), UNDECIDED),
    ],
)
def test_c01_verdicts(throughput: Change, itl: Change, steps: tuple[Change, ...], verdict: str) -> None:
    assert load_and_latency.judge_triangle(throughput, itl, steps)[0] == verdict


def test_c36_alone_is_not_under_load(measured: Any) -> None:
    found = run_claim("C36", sweep=measured, options=SMALL)
    assert found["verdict"] == HOLDS and "with 16 at once" in found["reason"]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({8: UP, 16: UP}, HOLDS),
        ({8: SAME, 16: Change(1.2, 1.1, 1.3)}, LIMITED),
        ({8: SAME, 16: SAME}, FAILS),
        ({8: SAME, 16: MAYBE}, UNDECIDED),
        ({8: Change(None, None, None), 16: Change(None, None, None)}, UNDECIDED),
    ],
)
def test_c36_verdicts(changes: dict[int, Change], verdict: str) -> None:
    assert load_and_latency.judge_alone(changes)[0] == verdict


def test_c35_finds_both_knees_and_the_limits(measured: Any) -> None:
    """7 MiB of the fake engine's pool are 28 blocks of 16: nine sequences of 40 tokens."""
    found = run_claim("C35", sweep=measured, options={**SMALL, "settings": {"kv_memory_mib": 7}})
    assert found["verdict"] == HOLDS, found["reason"]
    latency, memory, limit = found["evidence"][:3]
    assert latency["load"] < latency["next_load"] and latency["confidence"] > 0.9
    assert (memory["load"], memory["next_load"]) == (8, 16) and memory["running_before"] == 8
    assert limit["provenance"] == "computed" and limit["instance_limit_rps"] > 0


def knee(found: bool, confidence: float = 1.0, reason: str = "no knee up to 32", **more: Any) -> dict[str, Any]:
    return {"found": found, "load": 8, "next_load": 16, "confidence": confidence if found else None, "reason": reason,
            "running_before": 8, "predicted": {"all_mean": 11}, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("latency", "memory", "verdict"),
    [
        (knee(True), knee(True), HOLDS),
        (knee(True), knee(True, predicted={"all_mean": 30}), LIMITED),
        (knee(True, 0.6), knee(True), UNDECIDED),
        (knee(True), knee(False), LIMITED),
        (knee(False, reason="no knee up to 32; the step to 16 may be one, its interval includes 0.5"), knee(True),
         UNDECIDED),
        (knee(False), knee(False), FAILS),
    ],
)  # fmt: skip
def test_c35_verdicts(latency: dict[str, Any], memory: dict[str, Any], verdict: str) -> None:
    limits = {"instance_limit_rps": 3.0}
    assert both_knees.judge({"latency": latency, "memory": memory}, limits)[0] == verdict


def test_c44_takes_its_load_and_objectives_from_the_engine_itself(measured: Any) -> None:
    found = run_claim("C44", sweep=measured, options=SMALL)
    assert found["verdict"] in (HOLDS, LIMITED, FAILS, UNDECIDED)
    beforehand, capped = measured.seen
    assert (beforehand["repeats"], capped["repeats"]) == (1, 2)
    assert capped["over"] == "max_num_seqs" and capped["rate_rps"] > 0 and capped["slo"].startswith("ttft_p95=")
    assert [row["part"] for row in found["evidence"]][2:] == [f"cap, max_num_seqs={n}" for n in (1, 2, 4, 8, 16)]


@pytest.mark.parametrize(
    ("ttft", "goodput", "verdict"),
    [
        ([(4, UP)], [(4, UP)], HOLDS),
        ([(4, UP)], [(4, SAME)], LIMITED),
        ([(4, DOWN)], [(4, UP)], LIMITED),
        ([(4, DOWN)], [(4, SAME)], FAILS),
        ([(4, MAYBE)], [(4, DOWN)], UNDECIDED),
    ],
)
def test_c44_verdicts(ttft: list[Any], goodput: list[Any], verdict: str) -> None:
    assert capped_batch.judge(ttft, goodput)[0] == verdict


def test_c46_names_both_loads(measured: Any) -> None:
    found = run_claim("C46", sweep=measured, options={**SMALL, "settings": {"batching": "dynamic"}})
    assert [spec["over"] for spec in measured.seen] == ["batching", "concurrency"]
    assert all("batching" not in spec["settings"] for spec in measured.seen)
    assert found["verdict"] in (HOLDS, LIMITED) and "a server with one client" in found["reason"]


@pytest.mark.parametrize(
    ("throughput", "static", "light", "verdict"),
    [
        (UP, UP, UP, HOLDS),
        (UP, DOWN, UP, LIMITED),
        (SAME, DOWN, UP, FAILS),
        (UP, DOWN, MAYBE, UNDECIDED),
        (UP, DOWN, SAME, LIMITED),
    ],
)
def test_c46_verdicts(throughput: Change, static: Change, light: Change, verdict: str) -> None:
    assert two_loads.judge(throughput, static, light)[0] == verdict


def test_the_users_options_reach_every_sweep(measured: Any) -> None:
    options = {"num_requests": 4, "repeats": "auto", "settings": {"block_size": 8}, "seed": 3,
               "price_per_device_hour": 2.0}  # fmt: skip
    run_claim("C36", sweep=measured, options=options)
    spec = measured.seen[0]
    assert (spec["num_requests"], spec["repeats"], spec["seed"], spec["price_per_device_hour"]) == (4, 3, 3, 2.0)
    assert spec["settings"] == {"max_num_seqs": 8, "block_size": 8}
    assert set(CHECKED_BY_SWEEP) == {"C01", "C35", "C36", "C44", "C46"}
