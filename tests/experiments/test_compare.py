"""Comparisons on the engine with a virtual clock: order, verdicts, stopping, cancelling, the JSON's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments import compare as comparing
from experiments import loadgen
from experiments.cli.tables import print_comparison
from experiments.compare import CompareSpec, ComparisonCancelled, kept_pairs, parse_vary, run_comparison
from experiments.kinds import kind_of
from experiments.quality.agreement import quality_missing
from experiments.spec import BenchSpec
from experiments.statistics import AUTO_LOOKS
from experiments.store import Store
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

CURVES = ["ttft_s", "itl_s", "output_tokens_per_s", "cost_per_request", "quality"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    made = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, hundreds of runs
    return made


def compare(clock: VirtualClock, rig: FakeRig | None = None, **spec: Any) -> dict[str, Any]:
    store = spec.pop("store", None)
    hooks = {name: spec.pop(name) for name in ("on_live", "should_cancel") if name in spec}
    return run_comparison(spec, store, "r0", rig=rig or FakeRig(clock), **hooks)  # type: ignore[arg-type]


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    return {curve["name"]: curve["verdict"] for curve in result["curves"]}


def test_continuous_beats_static_on_mixed_lengths(clock: VirtualClock) -> None:
    result = compare(clock, FakeRig(clock, noise=0.02), variable="batching", values=["static", "continuous"], repeats=5)
    assert verdicts(result)["output_tokens_per_s"] == "better"
    assert verdicts(result)["ttft_s"] == "better"
    assert verdicts(result)["quality"] == "no difference"
    assert result["quality"]["same_token_ids_share"] == 1.0


def test_equal_lengths_at_once_make_no_difference(clock: VirtualClock) -> None:
    rig = FakeRig(clock, noise=0.02)
    result = compare(clock, rig, variable="batching", values=["static", "continuous"], workload="equal", repeats="auto")
    assert set(verdicts(result).values()) == {"no difference"}
    assert result["repeats"] in AUTO_LOOKS


def test_arms_alternate_abba_with_a_fresh_engine_each(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    compare(clock, rig, variable="batching", values=["static", "continuous"], repeats=4, num_requests=2)
    warm_up, runs, quality = rig.made[:2], rig.made[2:-2], rig.made[-2:]
    assert [config.batching[0] for config in warm_up] == ["s", "c"]
    assert [config.batching[0] for config in runs] == list("sccssccs")
    assert [config.batching[0] for config in quality] == ["s", "c"]


def test_the_json_has_the_contracts_keys(clock: VirtualClock) -> None:
    result = compare(clock, variable="block_size", values=[16, 32], repeats=2, num_requests=3)
    assert {"variable", "derived", "arms", "curves", "repeats", "run_id"} <= result.keys()
    assert [curve["name"] for curve in result["curves"]] == CURVES
    keys = {"name", "candidate_value", "statistic", "better", "baseline", "candidate", "change_pct", "ci95",
            "noise_floor_pct", "verdict", "provenance"}  # fmt: skip
    for curve in result["curves"]:
        assert keys <= curve.keys()
        assert curve["candidate_value"] == 32
    assert [arm["value"] for arm in result["arms"]] == [16, 32]
    assert result["arms"][0]["metrics"]["ttft_s"]["n"] == 6  # 3 requests, 2 repeats
    assert result["arms"][0]["metrics"]["quality"] == pytest.approx(0.3679, abs=1e-4)
    assert "block_size" not in result["held_equal"]
    json.dumps(result, allow_nan=False)


def test_what_the_variable_derives_is_listed_when_it_differs(clock: VirtualClock) -> None:
    assert compare(clock, variable="block_size", values=[16, 32], repeats=1, num_requests=2)["derived"] == {
        "num_kv_blocks": [1024, 512]
    }
    assert compare(clock, variable="block_size", values=[16, 16], repeats=1, num_requests=2)["derived"] == {}


def test_a_comparison_without_quality_gives_the_reason_and_the_table_says_so(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.targets.engine.mean_logprobs", lambda engine, texts, on_each: [None] * len(texts))
    result = compare(clock, variable="dtype", values=["fp32", "bf16"], repeats=2, num_requests=2)
    assert result["quality"]["measured"] is False
    assert quality_missing(result) == result["quality"]["reason"] == "no answer of the baseline could be scored"
    print_comparison(result)
    assert "quality not measured: no answer of the baseline could be scored" in capsys.readouterr().out
    assert quality_missing({**result, "variable": "threads"}) is None
    assert quality_missing({"variable": "dtype", "quality": None}) == "it was skipped"


def test_measured_quality_needs_no_warning(clock: VirtualClock) -> None:
    result = compare(clock, variable="dtype", values=["fp32", "bf16"], repeats=2, num_requests=2)
    assert result["quality"]["measured"] is True and quality_missing(result) is None


def test_a_less_likely_text_is_worse_quality(clock: VirtualClock) -> None:
    rig = FakeRig(clock, speed=lambda config: {"logprob": -1.0 if config.block_size == 16 else -1.5})
    result = compare(clock, rig, variable="block_size", values=[16, 32], repeats=2, num_requests=8)
    assert verdicts(result)["quality"] == "worse"
    assert result["quality"]["mean_logprob"] == {"baseline": -1.0, "candidate": -1.5}
    assert result["quality"]["requests_scored"] == 8


def test_auto_stops_at_the_first_look_that_decides(clock: VirtualClock) -> None:
    rig = FakeRig(clock, speed=lambda config: {"base_s": 0.01 if config.seed == 0 else 0.02}, noise=0.0005)
    result = compare(clock, rig, variable="seed", values=[0, 1], repeats="auto", num_requests=4)
    assert result["repeats"] == 3
    assert result["repeats_asked"] == "auto"


def test_auto_ends_at_twenty_when_noise_hides_the_answer(clock: VirtualClock) -> None:
    rig = FakeRig(clock, noise=0.3)
    result = compare(clock, rig, variable="seed", values=[0, 0], repeats="auto", num_requests=2, max_tokens_cap=6)
    assert result["repeats"] == 20


def test_same_against_same_is_rarely_called_different(clock: VirtualClock) -> None:
    """40 comparisons of a value with itself, 3 % noise: at most 4 with any better or worse curve."""
    different = 0
    for seed in range(40):
        rig = FakeRig(clock, seed=seed, noise=0.03)
        result = compare(clock, rig, variable="batching", values=["continuous"] * 2, repeats=5, num_requests=3,
                         max_tokens_cap=6)  # fmt: skip
        assert all(curve["noise_floor_pct"] is not None for curve in result["curves"])
        different += any(word in ("better", "worse") for word in verdicts(result).values())
    assert different <= 4


def test_cancelling_keeps_the_finished_repeats(clock: VirtualClock, tmp_path: Any) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("compare", {})
    rig = FakeRig(clock)

    def should_cancel() -> bool:
        return len(rig.made) > 2 + 5  # two warm-ups, then in the third pair's first run

    with pytest.raises(ComparisonCancelled) as caught:
        run_comparison({"variable": "seed", "values": [0, 1], "repeats": 9, "num_requests": 2}, store, run_id,
                       should_cancel=should_cancel, rig=rig)  # fmt: skip
    result = caught.value.result
    assert result is not None
    assert (result["repeats"], result["cancelled"]) == (2, True)
    assert verdicts(result)["quality"] == "inconclusive"
    assert len(store.records(run_id)) >= 4
    json.dumps(result, allow_nan=False)


def test_cancelled_after_one_pair_it_shows_that_pair_without_intervals(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    with pytest.raises(ComparisonCancelled) as caught:
        compare(clock, rig, variable="seed", values=[0, 1], repeats=3, num_requests=2,
                should_cancel=lambda: len(rig.made) > 4)  # fmt: skip
    result = caught.value.result
    assert result is not None and (result["repeats"], result["cancelled"]) == (1, True)
    assert set(verdicts(result).values()) == {"inconclusive"}
    assert all(curve["ci95"] is None for curve in result["curves"])
    assert all(curve["change_pct"] is not None for curve in result["curves"] if curve["name"] != "quality")
    json.dumps(result, allow_nan=False)
    print_comparison(result)


def test_one_that_was_stopped_goes_on_after_its_last_whole_pair(clock: VirtualClock, tmp_path: Any) -> None:
    spec = {"variable": "seed", "values": [0, 1], "repeats": 4, "num_requests": 2}
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("compare", CompareSpec.from_dict(spec).to_dict())
    rig = FakeRig(clock, noise=0.1)
    with pytest.raises(ComparisonCancelled):  # two warm-ups, then in the second run of the third pair
        run_comparison(spec, store, run_id, should_cancel=lambda: len(rig.made) > 2 + 5, rig=rig)  # type: ignore[arg-type]
    assert len(store.record_keys(run_id)) == 5
    kept = kept_pairs(store, run_id)
    assert sorted(kept) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    again = FakeRig(clock, noise=0.1)
    result = run_comparison(spec, store, run_id, rig=again, kept=kept)  # type: ignore[arg-type]
    assert (result["repeats"], result["cancelled"]) == (4, False)
    assert len(again.made) == 2 + 4 + 2, "warm-ups, two pairs, quality"
    after = {key: store.record(run_id, *key) for key in kept}
    assert after == kept and sorted(store.record_keys(run_id)) == [(arm, n) for arm in (0, 1) for n in (1, 2, 3, 4)]


def test_pairs_of_another_version_of_the_code_are_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("compare", CompareSpec().to_dict(), code="a+b")
    given: list[Any] = []

    def measured(*_: Any, kept: Any) -> dict[str, Any]:
        given.append(kept)
        return {"warnings": []}

    monkeypatch.setattr(comparing, "run_comparison", measured)
    monkeypatch.setattr(comparing, "kept_pairs", lambda store, run_id: {(0, 1): {}, (1, 1): {}})
    kind = kind_of("compare")
    assert kind.resumable == "a comparison"
    told = kind.run(store.get_run(run_id), store, lambda _: None, lambda: False)
    assert told["warnings"] == [comparing.OTHER_CODE] and given == [{(0, 1): {}, (1, 1): {}}]
    store.update_run(run_id, code="b")
    assert not kind.run(store.get_run(run_id), store, lambda _: None, lambda: False)["warnings"]


@pytest.mark.parametrize("engines", [0, 1, 2, 4])
def test_cancelling_before_a_pair_leaves_no_result(clock: VirtualClock, engines: int) -> None:
    rig = FakeRig(clock)
    with pytest.raises(ComparisonCancelled) as caught:
        compare(clock, rig, variable="seed", values=[0, 1], repeats=3, num_requests=2,
                should_cancel=lambda: len(rig.made) >= engines)  # fmt: skip
    assert caught.value.result is None


def test_the_live_object_moves_from_loading_to_done(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments import live

    monkeypatch.setattr(live, "INTERVAL_S", 0.0)
    seen: list[dict[str, Any]] = []
    compare(clock, variable="batching", values=["static", "continuous"], repeats=2, num_requests=3,
            on_live=lambda item: seen.append(json.loads(json.dumps(item))))  # fmt: skip
    phases = [item["phase"] for item in seen]
    assert list(dict.fromkeys(phases)) == ["loading", "warmup", "running", "quality", "done"]
    fractions = [item["fraction"] for item in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    running = [item for item in seen if item["phase"] == "running" and item["snapshot"]]
    assert {"running", "waiting", "blocks", "requests", "ledger"} <= running[0]["snapshot"].keys()
    assert len({len(points) for points in running[-1]["series"].values()}) == 1
    assert running[-1]["previous_series"]["t_s"]
    assert [row["repeat"] for row in seen[-1]["repeats_so_far"]] == [1, 2]
    assert None not in seen[-1]["repeats_so_far"][0]["values"]


def test_the_live_object_comes_at_most_four_times_a_second() -> None:
    from types import SimpleNamespace

    from experiments.live import LiveReport
    from experiments.loadgen import Progress

    now, seen = [0.0], []
    report = LiveReport(seen.append, arms=1, repeats=1, now=lambda: now[0])
    report.begin_run(0, 1)
    snapshot = {"output_tokens": 0, "running": 1, "waiting": 0, "blocks": {"used": 1}, "step_s": 0.01}
    engine = SimpleNamespace(snapshot=lambda: snapshot)
    for step in range(1, 1001):
        now[0] = step / 100
        report.tick(engine, Progress(step, 1000, round(now[0] * 1e9)))
    assert 30 <= len(seen) <= 41
    assert seen[-1]["eta_s"] == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"variable": "nope"}, "variable"),
        ({"values": ["static"]}, "--vary"),
        ({"values": ["static", "x"]}, "batching"),
        ({"settings": {"batching": "static"}}, "--set"),
        ({"settings": {"threads": -1}}, "threads"),
        ({"workload": "nope"}, "workload"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": "many"}, "repeats"),
        ({"num_requests": 0}, "num_requests"),
        ({"rate_rps": 0}, "rate_rps"),
        ({"rate_rps": float("nan")}, "rate_rps"),
        ({"workload": "equal", "rate_rps": 1}, "rate_rps"),
        ({"seed": -1}, "seed"),
        ({"slo": "ttft=x"}, "slo"),
        ({"price_per_device_hour": 0}, "price_per_device_hour"),
        ({"price_per_device_hour": float("inf")}, "price_per_device_hour"),
        ({"guess_pct": "a lot"}, "guess_pct"),
        ({"max_tokens_cap": 0}, "max_tokens_cap"),
        ({"colour": "red"}, "spec"),
    ],
)
def test_a_wrong_spec_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        CompareSpec.from_dict({"variable": "batching", "values": ["static", "continuous"], **change})
    assert caught.value.field == field


def test_a_spec_survives_its_json() -> None:
    spec = CompareSpec.from_dict({"variable": "max_num_seqs", "values": ["2", "4"], "repeats": "auto",
                                  "settings": {"threads": "1"}, "slo": "ttft_p95=0.5"})  # fmt: skip
    assert spec.values == (2, 4) and spec.settings == {"threads": 1} and spec.repeats is None
    assert CompareSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert [config.max_num_seqs for config in spec.configs()] == [2, 4]
    assert spec.configs()[0] == EngineConfig.from_settings({"max_num_seqs": 2, "threads": 1})


@pytest.mark.parametrize(
    "texts",
    [[], ["a"], ["batching"], ["batching=static"], ["batching=static,"], ["batching=static,continuous,dynamic"],
     ["nope=1,2"], ["batching=static,continuous", "seed=1,2"], ["batching=static,continuous,seed=1,2"]],
)  # fmt: skip
def test_vary_takes_one_variable_and_two_values(texts: list[str]) -> None:
    with pytest.raises(InputError):
        parse_vary(texts)


def test_vary_may_name_the_same_value_twice() -> None:
    assert parse_vary(["batching=continuous,continuous"]) == ("batching", ["continuous", "continuous"])


def test_what_a_value_needs_is_held_in_both_arms_and_said(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    result = compare(clock, rig, variable="kv_layout", values=["contiguous", "paged"], repeats=1, num_requests=2)
    assert {config.prefix_cache for config in rig.made} == {"off"}
    assert result["held_equal"]["prefix_cache"] == "off"
    assert result["held_because"] == {"prefix_cache": {"value": "off", "because": "kv_layout=contiguous"}}
    assert compare(clock, variable="seed", values=[0, 1], repeats=1, num_requests=2)["held_because"] == {}


def test_a_held_layout_holds_what_it_needs_too() -> None:
    spec = CompareSpec.from_dict(
        {"variable": "max_num_seqs", "values": [2, 4], "settings": {"kv_layout": "contiguous"}}
    )
    assert {config.prefix_cache for config in spec.configs()} == {"off"}
    assert BenchSpec.from_dict({"settings": {"kv_layout": "contiguous"}}).config().prefix_cache == "off"


@pytest.mark.parametrize(
    "spec",
    [
        {"variable": "kv_layout", "values": ["contiguous", "paged"], "settings": {"prefix_cache": "on"}},
        {"variable": "prefix_cache", "values": ["off", "on"], "settings": {"kv_layout": "contiguous"}},
        {"variable": "seed", "values": [0, 1], "settings": {"kv_layout": "contiguous", "prefix_cache": "on"}},
    ],
)
def test_the_opposite_of_what_a_value_needs_is_refused_naming_both(spec: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="prefix_cache") as caught:
        CompareSpec.from_dict(spec)
    assert "kv_layout=contiguous" in str(caught.value) and caught.value.value == "on"


def test_saying_what_is_needed_anyway_is_fine() -> None:
    spec = CompareSpec.from_dict(
        {"variable": "kv_layout", "values": ["contiguous", "paged"], "settings": {"prefix_cache": "off"}}
    )
    assert CompareSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_an_arms_objectives_are_those_of_its_median_not_of_its_first_repeat(clock: VirtualClock) -> None:
    rig = FakeRig(clock, noise=0.2)
    result = compare(clock, rig, variable="batching", values=["static", "continuous"], repeats=3, num_requests=2,
                     slo="ttft_p95=9,itl_p95=9")  # fmt: skip
    for arm in result["arms"]:
        shown = {row["name"]: row["value"] for row in arm["metrics"]["objectives"]}
        assert shown == {f"{name}_p95": arm["metrics"][f"{name}_s"]["p95"] for name in ("ttft", "itl")}
