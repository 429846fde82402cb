"""Sweeps on the engine with a virtual clock, whose steps take 10 ms and 1 ms a token: all can be worked out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments import loadgen
from experiments.loadgen import Cancelled
from experiments.store import Store
from experiments.sweep import measure as measure_module
from experiments.sweep.limits import limits
from experiments.sweep.measure import TargetMeasure
from experiments.sweep.run import SweepCancelled, run_sweep
from experiments.sweep.spec import SweepSpec
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

WIDE = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "prefix_cache": "off"}
CURVE = ("label", "output_tokens_per_s", "ttft_p95_s", "itl_p95_s", "latency_per_token_s", "requests_per_s")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    made = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded
    monkeypatch.setattr(measure_module, "machine", lambda: {"trilemma": "test", "cores": 2, "load_before": 0.0})
    return made


def sweep(clock: VirtualClock, store: Store | None = None, run_id: str = "r0", **spec: Any) -> dict[str, Any]:
    hooks = {name: spec.pop(name) for name in ("on_live", "should_cancel", "rig") if name in spec}
    settings = {**WIDE, **spec.pop("settings", {})}
    settings.pop(spec.get("over"), None)
    asked = {"workload": "equal", "max_tokens_cap": 8, "settings": settings, **spec}
    return run_sweep(asked, store, run_id, rig=hooks.pop("rig", None) or FakeRig(clock), **hooks)


def curve(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(point[name] for name in CURVE) for point in result["points"]]


def knees(result: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (knee["load"], knee["next_load"]) for name, knee in result["knees"].items()}


LOADS = [1, 2, 4, 8, 16, 32]


def test_more_clients_buy_throughput_with_latency_and_the_knee_is_where_power_is_largest(clock: VirtualClock) -> None:
    result = sweep(clock, values=LOADS)
    points = result["points"]
    assert [point["value"] for point in points] == LOADS
    for name in ("output_tokens_per_s", "itl_p95_s", "latency_per_token_s"):
        values = [point[name] for point in points]
        assert values == sorted(values) and len(set(values)) == len(values)
    knee = result["knees"]["latency"]
    power = [point["output_tokens_per_s"] / point["latency_per_token_s"] for point in points]
    assert knee["found"] and knee["load"] == points[power.index(max(power))]["value"]
    assert knee["confidence"] == 1.0 and knee["ci95"] == [knee["load"]] * 2
    assert knee["segmented"]["slope_before"] < 0.5 < knee["segmented"]["slope_after"]
    assert not result["knees"]["memory"]["found"] and "no knee up to 32" in result["knees"]["memory"]["reason"]
    assert result["provenance"] == "measured" and json.dumps(result, allow_nan=False)


def test_each_client_sends_its_next_request_when_its_last_has_ended(clock: VirtualClock, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("sweep", {})
    sweep(clock, store, run_id, values=[3])
    record = store.record(run_id, 0, 1)
    ends = sorted(request["finish_ns"] for request in record["requests"])
    arrivals = sorted(request["arrival_ns"] for request in record["requests"])
    assert arrivals[:3] == [0, 0, 0] and len(arrivals) == 20
    for number, arrival in enumerate(arrivals[3:]):
        assert arrival >= ends[number]
    busy = [one for one in record["steps"] if one["commit_end_ns"] <= arrivals[-1]]
    assert max(one["num_seqs"] for one in record["steps"]) == 3 and busy
    assert record["workload"]["concurrency"] == 3 and record["workload"]["arrivals"] == "closed loop"


def test_the_same_sweep_gives_the_same_curve_and_knees_within_one_step(clock: VirtualClock) -> None:
    exact = [curve(sweep(clock, values=[1, 4, 16])) for _ in range(2)]
    assert exact[0] == exact[1]
    noisy = [sweep(clock, rig=FakeRig(clock, noise=0.03, seed=seed), values=LOADS[:5], repeats=3) for seed in (1, 2)]
    places = [LOADS.index(result["knees"]["latency"]["load"]) for result in noisy]
    assert abs(places[0] - places[1]) <= 1
    for one, two in zip(*(result["points"] for result in noisy), strict=True):
        assert one["output_tokens_per_s"] == pytest.approx(two["output_tokens_per_s"], rel=0.15)


def test_a_rate_that_is_not_kept_is_told_from_one_that_is(clock: VirtualClock) -> None:
    """Eight requests of 32 and 8 tokens take 8 x 40 ms and some 8 steps of 10 ms: about 20 requests/s."""
    result = sweep(clock, over="rate", values=[2, 7, 14, 28, 56], settings={"max_num_seqs": 8}, num_requests=80)
    behind = [point["behind"] for point in result["points"]]
    assert behind == [False, False, False, True, True]
    knee = result["knees"]["offered"]
    assert (knee["load"], knee["next_load"]) == (14, 28) and 15 < knee["served_rps"] < 24
    assert "the queue grew" in knee["reason"]
    # Twice the rate of what is served: the wait grows by about a second a second.
    last = result["points"][-1]
    assert last["growth"][0]["slope"] == pytest.approx(56 / last["served_rps"] - 1, rel=0.15)
    assert result["knees"]["latency"]["found"] and result["knees"]["latency"]["load"] in (7, 14)


def test_rates_share_one_draw_of_gaps_and_last_as_long_as_asked(clock: VirtualClock, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("sweep", {})
    sweep(clock, store, run_id, over="rate", values=[2, 4], duration_s=12)
    two, four = ([one["arrival_ns"] for one in store.record(run_id, arm, 1)["requests"]] for arm in (0, 1))
    assert (len(two), len(four)) == (24, 48)
    assert [2 * at for at in four[:24]] == pytest.approx(two, abs=4)


def test_auto_finds_its_rates_between_one_at_a_time_and_all_at_once(clock: VirtualClock) -> None:
    result = sweep(clock, over="auto", auto_points=4, num_requests=24, settings={"max_num_seqs": 8})
    origins = [point["origin"] for point in result["points"]]
    assert sorted(origins) == sorted(["synchronous", "throughput", *["between"] * 4])
    slow, fast = (next(p for p in result["points"] if p["origin"] == o) for o in ("synchronous", "throughput"))
    rates = [point["value"] for point in result["points"] if point["origin"] == "between"]
    assert rates[-1] == pytest.approx(fast["requests_per_s"], rel=1e-4)
    assert rates[0] - slow["requests_per_s"] == pytest.approx(rates[1] - rates[0], rel=1e-3)


def test_the_memory_knee_stands_beside_what_the_pool_holds(clock: VirtualClock) -> None:
    """4 MiB of the fake pool are 16 blocks of 16: five sequences of 40 tokens."""
    result = sweep(clock, values=[1, 2, 4, 8, 16], settings={"kv_memory_mib": 4, "kv_watermark": 0})
    knee = result["knees"]["memory"]
    assert knee["found"] and (knee["load"], knee["next_load"]) == (4, 8)
    assert knee["predicted"]["all_longest"] == knee["predicted"]["all_mean"] == 5
    assert knee["predicted"]["provenance"] == "computed"
    assert knee["context_tokens"] == 40 and knee["running_before"] == 4 and knee["confidence"] == 1.0
    pressed = next(point for point in result["points"] if point["value"] == 8)
    assert pressed["kv"]["preemptions"] or pressed["kv"]["wait_steps"]


def test_a_full_batch_is_not_taken_for_the_end_of_memory(clock: VirtualClock) -> None:
    result = sweep(clock, values=[1, 4, 16], settings={"max_num_seqs": 4})
    assert not result["knees"]["memory"]["found"]
    assert (
        "from 16 clients on some wait for one of the 4 slots; --set max_num_seqs=16 computes them together"
        in (result["warnings"])
    )


def test_the_highest_load_that_meets_the_objectives_is_searched_and_gives_the_limits(clock: VirtualClock) -> None:
    # ITL of c rows is 10 + c ms, and more in steps with a prompt: 5 clients at most stay under a mean of 20 ms or so.
    result = sweep(clock, values=[1, 16], slo="itl_p50=0.0155", headroom=0.2, demand_rps=100)
    limits = result["limits"]
    assert limits["basis"] == "objectives" and limits["outcome"] == "found" and limits["highest"] == 5
    searched = [point["value"] for point in result["points"] if point["origin"] == "bisection"]
    assert 5 in searched and 6 in searched
    meets = {point["value"]: point["meets"] for point in result["points"]}
    assert all(met == (value <= 5) for value, met in meets.items())
    at = next(point for point in result["points"] if point["value"] == 5)
    assert limits["instance_limit_rps"] == pytest.approx(0.8 * at["requests_per_s"])
    assert limits["scale_out_rps"] == pytest.approx(0.75 * limits["instance_limit_rps"])
    assert limits["instances"] == -(-100 // limits["scale_out_rps"]) and limits["provenance"] == "computed"


def test_without_objectives_the_limit_is_the_load_before_the_first_knee(clock: VirtualClock) -> None:
    result = sweep(clock, values=LOADS)
    assert result["limits"]["basis"] == "knee"
    assert result["limits"]["highest"] == result["knees"]["latency"]["load"]
    assert result["goodput"] is None and result["search"] is None
    calm = sweep(clock, values=[1, 2])
    assert calm["limits"]["instance_limit_rps"] is None and "no knee was reached" in calm["limits"]["reason"]


def test_objectives_met_everywhere_are_a_bound_and_missed_everywhere_no_limit(clock: VirtualClock) -> None:
    easy = sweep(clock, values=[1, 2, 4], slo="ttft_p95=60")["limits"]
    assert (easy["outcome"], easy["highest"]) == ("meets at the ceiling", 4)
    hard = sweep(clock, values=[1, 2, 4], slo="ttft_p95=0")["limits"]
    assert (hard["outcome"], hard["highest"], hard["instance_limit_rps"]) == ("misses at the floor", None, None)


def test_a_higher_load_that_meets_the_objectives_again_is_named_and_not_relied_on() -> None:
    def point(value: float, meets: bool) -> dict[str, Any]:
        return {
            "value": value,
            "meets": meets,
            "label": f"{value}",
            "load": {"rate_rps": value},
            "requests_per_s": value,
        }

    def found(*meets: bool) -> dict[str, Any]:
        points = [point(1.0 + place, one) for place, one in enumerate(meets)]
        return limits(points, None, {}, has_objectives=True, headroom=0.1, scale_out_at=0.7, demand_rps=None)

    assert "already; a higher load met them again" in found(False, True, True)["reason"]
    assert found(True, False, True)["highest"] == 1 and "met them again" in found(True, False, True)["reason"]
    assert "again" not in found(True, True, False)["reason"]


def test_a_variable_is_swept_at_one_load_and_goodput_says_which_value_is_best(clock: VirtualClock) -> None:
    result = sweep(clock, over="max_num_seqs", values=[1, 2, 4, 8], concurrency=8, slo="ttft_p95=0.3,itl_p95=0.05",
                   num_requests=32)  # fmt: skip
    assert [point["label"] for point in result["points"]] == [f"max_num_seqs={n}" for n in (1, 2, 4, 8)]
    assert [point["load"]["concurrency"] for point in result["points"]] == [8] * 4
    assert [point["metrics"]["concurrency"]["peak"] for point in result["points"]] == [1, 2, 4, 8]
    assert result["limits"] is None and not result["knees"]["latency"]["found"]
    assert result["goodput"]["value"] in (4, 8)


def test_a_value_that_the_engine_refuses_is_a_row_with_the_reason(clock: VirtualClock) -> None:
    result = sweep(clock, over="kv_memory_mib", values=[1, 64], concurrency=2, workload="mixed", num_requests=4)
    assert [point["value"] for point in result["points"]] == [64] or result["points"][0]["metrics"]["failed"]
    every = sweep(clock, over="kv_memory_mib", values=[1, 64], concurrency=2, workload="shared-prefix", num_requests=4)
    assert [point["value"] for point in every["points"]] == [64]
    assert every["unavailable"][0]["value"] == 1 and "kv_memory_mib=1" in every["unavailable"][0]["reason"]


class Counting(FakeRig):
    """Counts runs, and stops after so many."""

    def __init__(self, clock: VirtualClock, stop_after: int | None = None) -> None:
        super().__init__(clock)
        self.stop_after = stop_after
        self.runs: list[str] = []

    def counted(self, label: str) -> None:
        if self.stop_after is not None and len(self.runs) >= self.stop_after:
            raise RuntimeError("killed")
        self.runs.append(label)


@pytest.mark.parametrize(
    "asked", [{"values": [1, 2, 4], "repeats": 2}, {"over": "auto", "auto_points": 3, "num_requests": 20}]
)
def test_a_killed_sweep_repeats_no_finished_point(
    clock: VirtualClock, tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("sweep", {})
    whole = sweep(clock, **asked)
    rig = Counting(clock, stop_after=4)
    monkeypatch.setattr(TargetMeasure, "__call__", _counted(TargetMeasure.__call__, rig))
    with pytest.raises(RuntimeError, match="killed"):
        sweep(clock, store, run_id, rig=rig, **asked)
    first, rig.runs, rig.stop_after = rig.runs, [], None
    resumed = sweep(clock, store, run_id, rig=rig, **asked)
    assert len(first) == 4 and not set(first) & set(rig.runs)
    assert len(first) + len(rig.runs) == len(resumed["points"]) * resumed["repeats"]
    assert curve(resumed) == curve(whole) and resumed["knees"] == whole["knees"]


def _counted(call: Any, rig: Counting) -> Any:
    def counted(self: Any, point: Any, repeat: int) -> Any:
        rig.counted(f"{point.label('rate')} {repeat}")
        return call(self, point, repeat)

    return counted


def test_a_cancelled_sweep_gives_what_is_finished(clock: VirtualClock) -> None:
    calls = iter([False] * 40 + [True] * 10_000)
    with pytest.raises(SweepCancelled) as stopped:
        sweep(clock, values=[1, 2, 4], should_cancel=lambda: next(calls))
    assert isinstance(stopped.value, Cancelled)
    assert stopped.value.result is None or stopped.value.result["cancelled"]


def test_points_are_told_while_the_sweep_runs(clock: VirtualClock) -> None:
    told: list[dict[str, Any]] = []
    sweep(clock, values=[1, 2, 4], on_live=told.append)
    assert told[-1]["fraction"] == 1.0 and len(told[-1]["points"]) == 3
    assert all(0 <= one["fraction"] <= 1 for one in told)


def test_a_sweep_changes_nothing_but_the_load(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    sweep(clock, rig=rig, values=[1, 2])
    made: list[EngineConfig] = rig.made
    assert len({repr(sorted(config.settings().items())) for config in made}) == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"over": "speed", "values": [1, 2]}, "variable"),
        ({"over": "concurrency", "values": [0]}, "--over concurrency"),
        ({"over": "concurrency", "values": [1, 1]}, "--over concurrency"),
        ({"over": "rate", "values": [-1]}, "--over rate"),
        ({"over": "rate", "values": [1], "concurrency": 2}, "--concurrency"),
        ({"over": "concurrency", "values": [1], "rate_rps": 2}, "--rate"),
        ({"over": "max_num_seqs", "values": [1]}, "--over max_num_seqs"),
        ({"over": "max_num_seqs", "values": [1, 2], "settings": {"max_num_seqs": 4}}, "--set"),
        ({"over": "auto", "values": [1]}, "--over"),
        ({"headroom": 1.5}, "--headroom"),
        ({"slo": "ttft=1"}, "slo"),
        ({"arrivals": "bursty"}, "--arrivals"),
        ({"endpoint": "http://127.0.0.1:1", "over": "block_size", "values": [16, 32]}, "--over"),
        ({"endpoint": "http://127.0.0.1:1", "ray_address": "local"}, "--ray-address"),
        ({"endpoint": "localhost"}, "endpoint"),
    ],
)
def test_wrong_input_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        SweepSpec.from_dict(fields)
    assert refused.value.field == named


def test_a_spec_survives_the_store() -> None:
    spec = SweepSpec.from_dict({"over": "rate", "values": ["0.5", "2"], "slo": "ttft_p95=1", "demand_rps": "7"})
    assert SweepSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_cost_objective_finds_no_highest_load_and_says_why(clock: VirtualClock) -> None:
    result = sweep(clock, values=[1, 4], slo="cost_per_request=0.00002", num_requests=8)
    assert result["search"] is None
    assert (result["limits"]["outcome"], result["limits"]["highest_rps"]) == ("unknown", None)
    assert "cost_per_request does not rise" in result["limits"]["reason"]
