"""Plans: what the ledger prunes, what a simulation must hold, the front, launch lines, the command line."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from experiments.cli import run as trilemma
from experiments.loadgen import Cancelled
from experiments.planner import launch_lines as lines
from experiments.planner.candidates import Candidate, candidates, cannot_be_split
from experiments.planner.evaluate import Evaluator, Tried
from experiments.planner.ledger_stage import LedgerStage, decode_s, prompts_s
from experiments.planner.pareto import front
from experiments.planner.run import plan
from experiments.planner.search import Round, ratio_of, replicas_for
from experiments.planner.spec import PlanSpec, parse_prices
from experiments.planner.traffic import traffic_of
from ledger.capacity import Deployment, fits, kv_room_bytes
from ledger.errors import InputError
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec

QUICK = (Round(4, 24, 0.5, 3), Round(3, 48, 0.3, 3))
ASKED: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpus": ["h100-sxm"], "rate_rps": 60, "input_tokens": 256, "output_tokens": 48,
    "slo": "ttft_p95=0.3,tpot_p95=0.02", "prices": {"h100-sxm": 2.0}, "tps": [1, 2], "pps": [1], "seqs": [16, 64],
    "batched": [2048], "weights": ["bf16"], "kv_dtypes": ["bf16"], "disaggregation": False,
}  # fmt: skip


def spec_of(**changes: Any) -> PlanSpec:
    return PlanSpec.from_dict({**ASKED, **changes})


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return plan(spec_of(), rounds=QUICK)


def test_every_plan_meets_its_objectives_in_its_own_simulation_and_says_what_it_is(result: dict[str, Any]) -> None:
    assert result["plans"] and result["provenance"] == "simulated"
    for one in result["plans"]:
        assert [row["name"] for row in one["objectives"]] == ["ttft_p95", "tpot_p95"]
        assert all(row["met"] and row["value"] <= row["limit"] for row in one["objectives"])
        assert one["load_rps"] * one["replicas"] == pytest.approx(60)
        assert one["load_rps"] <= one["limit_rps"] * 0.8 * (1 + 1e-9)
        assert one["devices"] == one["replicas"] * one["devices_per_replica"]
        assert one["provenance"] == "simulated" and one["error_band_pct"] > 0 and one["calibration"] == "public"
        assert one["binding"]["text"] and sum(one["binding"]["parts"].values()) == pytest.approx(1)
    json.dumps(result, allow_nan=False)


def test_the_cost_is_that_of_whole_cards_and_all_candidates_are_accounted_for(result: dict[str, Any]) -> None:
    for one in result["plans"]:
        tokens_an_hour = 60 * 48 * 3600
        assert one["cost_per_million_output_tokens"] == pytest.approx(one["devices"] * 2.0 * 1e6 / tokens_an_hour)
        assert one["tokens_per_s_per_card"] == pytest.approx(60 * 48 / one["devices"])
        assert one["tokens_per_s_per_user"] == pytest.approx(1 / one["tpot_s"]["mean"])
    costs = [one["cost_per_million_output_tokens"] for one in result["plans"]]
    assert costs == sorted(costs)
    dropped = sum(one["count"] for one in result["pruned"])
    assert result["counts"]["candidates"] == dropped + result["counts"]["plans"]


def test_the_front_of_the_simulated_replicas_is_the_one_found_by_trying_all_pairs(result: dict[str, Any]) -> None:
    points = result["simulated"]
    assert len(points) >= 2

    def beaten(one: dict[str, Any]) -> bool:
        pair = (one["tokens_per_s_per_user"], one["tokens_per_s_per_card"])
        others = [(each["tokens_per_s_per_user"], each["tokens_per_s_per_card"]) for each in points]
        return any(other != pair and other[0] >= pair[0] and other[1] >= pair[1] for other in others)

    assert [one["on_front"] for one in points] == [not beaten(one) for one in points]


def test_the_front_equals_brute_force_on_random_points_with_ties() -> None:
    rng = random.Random(7)
    for _ in range(200):
        points = [(rng.randrange(6), rng.randrange(6)) for _ in range(rng.randrange(1, 12))]

        def beaten(one: tuple[int, int], points: list[tuple[int, int]] = points) -> bool:
            return any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)

        assert sorted(front(points)) == [place for place, one in enumerate(points) if not beaten(one)]


def test_twice_the_price_is_twice_the_cost_and_the_same_plan() -> None:
    small: dict[str, Any] = {"tps": [1], "seqs": [16], "rate_rps": 20}
    cheap, dear = (plan(spec_of(prices={"h100-sxm": price}, **small), rounds=QUICK) for price in (2.0, 4.0))
    assert cheap["plans"] and [one["label"] for one in dear["plans"]] == [one["label"] for one in cheap["plans"]]
    for one, other in zip(cheap["plans"], dear["plans"], strict=True):
        assert other["cost_per_million_output_tokens"] == pytest.approx(2 * one["cost_per_million_output_tokens"])


def test_what_the_ledger_prunes_does_not_fit_and_what_it_keeps_does() -> None:
    spec = spec_of(model="llama-3.1-70b", tps=[1, 2, 4, 8], seqs=[16, 256])
    stage = LedgerStage(spec, load_model_spec(spec.model), traffic_of(spec))
    kept = {one.candidate for one in stage.estimates()}
    card = accelerator("h100-sxm")
    told = {one["reason"]: one for one in stage.pruned.to_json()}
    pruned = 0
    for one in candidates(spec, stage.model):
        deployment = Deployment(
            stage.model, tp=one.tp, seq_len=304, capacity_bytes=card.memory_bytes, card=card.name,
            max_num_seqs=one.max_num_seqs, max_num_batched_tokens=one.max_num_batched_tokens,
        )  # fmt: skip
        pruned += not fits(deployment)
        assert fits(deployment) or one not in kept
    assert told["memory"]["count"] == pruned > 0  # 140 GB of weights on one card of 80
    assert all(one.tp > 1 for one in kept)


def test_an_objective_that_one_request_alone_misses_prunes_and_its_simulation_misses_it_too() -> None:
    spec = spec_of(slo="tpot_p95=0.0005")
    stage = LedgerStage(spec, load_model_spec(spec.model), traffic := traffic_of(spec))
    assert not stage.estimates() and stage.pruned.count("tpot") == stage.total
    loose = LedgerStage(spec_of(slo=None), stage.model, traffic)
    estimate = loose.estimates()[0]
    at = Evaluator(spec, traffic).at(Tried(estimate, estimate.candidate), 0.5, 8)
    assert "tpot_p95" in at.missed
    slow = LedgerStage(spec_of(slo="ttft_p50=0.001"), stage.model, traffic)
    assert not slow.estimates() and slow.pruned.count("ttft") == slow.total


def test_a_lone_request_takes_what_its_steps_take() -> None:
    spec = spec_of(slo=None)
    traffic = traffic_of(spec)
    stage = LedgerStage(spec, load_model_spec(spec.model), traffic)
    estimate = stage.estimates()[0]
    times = stage.times(estimate.candidate)
    at = Evaluator(spec, traffic).at(Tried(estimate, estimate.candidate), 0.1, 8)
    assert at.metrics["ttft_s"]["p50"] == pytest.approx(prompts_s(times, 256, 1, 2048), rel=0.01)
    assert at.metrics["tpot_s"]["p50"] == pytest.approx(decode_s(times, 1, 280), rel=0.02)
    assert at.running == pytest.approx(0.1 * 47 * at.metrics["tpot_s"]["mean"], rel=0.05)


def test_too_few_cards_leave_no_plan_and_say_why() -> None:
    found = plan(spec_of(rate_rps=3000, max_devices=1), rounds=QUICK)
    assert not found["plans"] and any("no plan" in warning for warning in found["warnings"])
    assert {"devices", "too_many"} & {one["reason"] for one in found["pruned"]}


def test_a_rate_that_is_far_too_high_is_a_backlog_and_a_low_one_is_not() -> None:
    spec = spec_of(slo=None)
    stage = LedgerStage(spec, load_model_spec(spec.model), traffic := traffic_of(spec))
    estimate = stage.estimates()[0]
    tried, evaluator = Tried(estimate, estimate.candidate), Evaluator(spec, traffic)
    assert evaluator.at(tried, 0.3 * estimate.rps, 48).meets
    assert "backlog" in evaluator.at(tried, 3 * estimate.most_rps, 48).missed


def test_prefill_and_decode_apart_is_a_group_of_its_own_cards() -> None:
    asked = spec_of(tps=[1], seqs=[64], rate_rps=30, disaggregation=True)
    found = plan(asked, rounds=(Round(1, 24, 0.5, 3),))
    groups = [one for one in found["plans"] if one["disaggregation"]]
    assert groups
    for one in groups:
        sides = one["disaggregation"]
        assert one["devices_per_replica"] == sides["prefill_replicas"] + sides["decode_replicas"] >= 2
        assert sides["link"]
        vllm = next(each for each in one["launch"] if each["engine"] == "vLLM")
        assert len(vllm["lines"]) == one["devices_per_replica"] + 1 and "NixlConnector" in vllm["lines"][0]


@pytest.mark.parametrize(("work", "expected"), [(1.0, (1, 1)), (0.5, (1, 2)), (3.2, (3, 1)), (1e-9, (1, 4))])
def test_sides_of_a_group_are_in_the_ratio_of_their_work(work: float, expected: tuple[int, int]) -> None:
    assert ratio_of(work, 8) == expected
    assert sum(ratio_of(work, 2)) == 2


def test_replicas_are_the_rate_over_the_limit_less_headroom_rounded_up() -> None:
    assert replicas_for(10, 5, 0.2) == 3  # 10 / 4 = 2.5
    assert replicas_for(8, 5, 0.2) == 2  # exactly 2
    assert replicas_for(0.1, 5, 0.2) == 1


def test_splits_that_engines_refuse_are_told_apart() -> None:
    model = load_model_spec("llama-3.2-1b")  # 32 query heads, 16 layers
    base = Candidate("h100-sxm", 1, 1, "bf16", "bf16", 16, 2048)
    assert cannot_be_split(base, model) is None
    assert "divide" in str(cannot_be_split(replace(base, tp=3), model))
    assert "node" in str(cannot_be_split(replace(base, tp=4, pp=4), model))


def test_formats_that_a_card_does_not_multiply_in_are_not_tried_by_themselves() -> None:
    model = load_model_spec("llama-3.1-8b")
    own = {"weights": None, "kv_dtypes": None}
    on_a100 = {one.weights for one in candidates(spec_of(gpus=["a100-sxm-80gb"], prices={}, **own), model)}
    on_h100 = {one.weights for one in candidates(spec_of(**own), model)}
    assert on_a100 == {"bf16", "w4a16"} and on_h100 == {"bf16", "fp8", "w4a16"}


# -- launch lines ----------------------------------------------------------------------------------------------------


def deployment_of(candidate: Candidate) -> Deployment:
    card = accelerator(candidate.gpu)
    return Deployment(
        load_model_spec("llama-3.1-8b"), weights=candidate.weights, kv_dtype=candidate.kv_dtype, tp=candidate.tp,
        seq_len=1280, capacity_bytes=card.memory_bytes, card=card.name, max_num_seqs=64, max_num_batched_tokens=8192,
    )  # fmt: skip


def test_the_fraction_of_each_engine_leaves_the_pool_that_was_simulated() -> None:
    candidate = Candidate("h100-sxm", 2, 1, "fp8", "fp8", 64, 8192)
    deployment, kv_bytes = deployment_of(candidate), 30 * 2**30
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        fraction = lines.fraction_for(engine, deployment, kv_bytes)
        under = replace(deployment, engine=engine, memory_fraction=fraction)
        assert (kv_room_bytes(under) or 0) >= kv_bytes
        assert (kv_room_bytes(replace(under, memory_fraction=round(fraction - 0.01, 2))) or 0) < kv_bytes
    fractions = {engine: lines.fraction_for(engine, deployment, kv_bytes) for engine in ("vllm", "tensorrt-llm")}
    assert fractions["vllm"] != fractions["tensorrt-llm"]  # of all memory, of what is left


def test_a_line_has_the_plans_sizes_in_each_engines_own_words() -> None:
    candidate = Candidate("h100-sxm", 2, 1, "fp8", "fp8", 64, 8192)
    found = {
        one["engine"]: one for one in lines.launch_lines(candidate, deployment_of(candidate), 30 * 2**30, replicas=3)
    }
    assert set(found) == {"vLLM", "SGLang", "TensorRT-LLM"}
    vllm, sglang, tensorrt = (found[name]["lines"][0] for name in ("vLLM", "SGLang", "TensorRT-LLM"))
    assert "--tensor-parallel-size 2" in vllm and "--max-num-seqs 64" in vllm and "--quantization fp8" in vllm
    assert "--kv-cache-dtype fp8" in vllm and "--gpu-memory-utilization" in vllm
    assert "--tp-size 2" in sglang and "--max-running-requests 64" in sglang and "fp8_e4m3" in sglang
    assert "--mem-fraction-static" in sglang
    assert "--tp_size 2" in tensorrt and "--max_batch_size 64" in tensorrt
    assert "--kv_cache_free_gpu_memory_fraction" in tensorrt
    assert found["TensorRT-LLM"]["files"] == {"extra.yaml": "kv_cache_config:\n  dtype: fp8\n"}
    assert all("3 of these" in " ".join(one["notes"]) for one in found.values())


def test_a_format_that_an_engine_has_no_option_for_has_no_line() -> None:
    candidate = Candidate("h100-sxm", 1, 1, "bf16", "int4", 64, 8192)
    for one in lines.launch_lines(candidate, deployment_of(candidate), 2**30, 1):
        assert one["lines"] is None and "int4" in one["notes"][0]


def test_prefill_and_decode_apart_names_every_server_and_the_router() -> None:
    candidate = Candidate("h100-sxm", 2, 1, "bf16", "fp8", 64, 8192, prefill_replicas=1, decode_replicas=2)
    found = {one["engine"]: one for one in lines.launch_lines(candidate, deployment_of(candidate), 2**30, 1)}
    sglang = found["SGLang"]["lines"]
    assert sum("--disaggregation-mode prefill" in line for line in sglang) == 1
    assert sum("--disaggregation-mode decode" in line for line in sglang) == 2
    assert "--base-gpu-id 4" in sglang[2] and sglang[-1].count("--decode http") == 2
    vllm = found["vLLM"]["lines"]
    assert "CUDA_VISIBLE_DEVICES=4,5" in vllm[2] and vllm[-1].count("localhost") == 3
    tensorrt = found["TensorRT-LLM"]
    assert set(tensorrt["files"]) == {"context.yaml", "generation.yaml", "disaggregated.yaml"}
    assert "dtype: fp8" in tensorrt["files"]["generation.yaml"] and "extra.yaml" not in tensorrt["lines"][0]


def test_prefill_servers_of_one_machine_have_bootstrap_ports_of_their_own() -> None:
    candidate = Candidate("h100-sxm", 1, 1, "bf16", "bf16", 64, 8192, prefill_replicas=2, decode_replicas=1)
    found = {one["engine"]: one for one in lines.launch_lines(candidate, deployment_of(candidate), 2**30, 1)}
    first, second, decode, router = found["SGLang"]["lines"]
    assert first.endswith("--disaggregation-bootstrap-port 8998") and second.endswith("-bootstrap-port 8999")
    assert "bootstrap" not in decode
    assert "--prefill http://127.0.0.1:30000 8998 --prefill http://127.0.0.1:30010 8999 --decode http" in router


# -- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gpus": ["h1000"]}, "h1000"),
        ({"gpus": []}, "--gpu"),
        ({"rate_rps": 0}, "rate"),
        ({"rate_rps": "fast"}, "rate"),
        ({"input_tokens": None}, "input_tokens"),
        ({"workload": "mixed"}, "input_tokens"),
        ({"slo": "quality_drop=0.1"}, "slo"),
        ({"slo": "cost_per_request=0.1"}, "slo"),
        ({"weights": ["w3"]}, "w3"),
        ({"kv_dtypes": ["auto"]}, "kv_dtype"),
        ({"tps": [16]}, "tp"),
        ({"prices": {"a100-sxm-80gb": 1}}, "--price"),
        ({"prices": {"h100-sxm": -1}}, "--price"),
        ({"max_devices": 0}, "max_devices"),
        ({"headroom": 1}, "headroom"),
        ({"model": "llama-9"}, "llama-9"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        PlanSpec.from_dict({**ASKED, **changes})
    assert field in str(caught.value) and "\n" not in str(caught.value)


def test_a_spec_survives_json_and_names_of_cards_are_the_catalogues() -> None:
    spec = PlanSpec.from_dict({**ASKED, "gpus": ["H100", "h100-sxm"], "prices": {"H100": 3}})
    assert spec.gpus == ("h100-sxm",) and spec.price("h100-sxm") == 3
    assert PlanSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_price_is_a_name_and_a_number() -> None:
    assert parse_prices(["h100-sxm=2.5"]) == {"h100-sxm": 2.5}
    with pytest.raises(InputError, match="NAME=PER_HOUR"):
        parse_prices(["2.5"])


def test_a_workloads_lengths_are_its_own_in_another_order() -> None:
    traffic = traffic_of(spec_of(workload="mixed", input_tokens=None, output_tokens=None))
    assert len(set(traffic.lengths)) > 10
    times = [job.arrival_ns for job in itertools.islice(traffic.jobs(10), 2000)]
    assert times == sorted(times) and times[-1] / 1e9 == pytest.approx(200, rel=0.1)
    faster = [job.arrival_ns for job in itertools.islice(traffic.jobs(20), 2000)]
    assert faster[-1] == pytest.approx(times[-1] / 2, rel=1e-6)


def test_a_search_stops_when_it_is_asked_to() -> None:
    with pytest.raises(Cancelled):
        plan(spec_of(), should_cancel=lambda: True, rounds=QUICK)


# -- the command line --------------------------------------------------------------------------------------------------


def test_wrong_input_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert trilemma(["plan", "llama-3.1-8b", "--gpu", "h100", "--rate", "5", "--input-tokens", "10"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.strip().splitlines()) == 1 and "output_tokens" in told.err


@pytest.mark.slow
def test_the_command_prints_one_json_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    asked = ["plan", "llama-3.2-1b", "--gpu", "h100", "--rate", "5", "--input-tokens", "64", "--output-tokens", "16"]
    small = ["--tp", "1", "--pp", "1", "--weights", "bf16", "--kv-dtype", "bf16", "--no-pd", "--max-num-seqs", "16"]
    assert trilemma([*asked, *small, "--slo", "ttft_p95=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plans"][0]["replicas"] == 1 and found["run_id"]
