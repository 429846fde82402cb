"""Each cause fires on its symptom, reproduced on the engine where a scheduler makes it, and is silent when all is well.

Engines here run the real scheduler, load generator and metrics on a virtual clock: around an executor without a model
(fakes.py), or around the roofline simulator where ceilings matter. What no engine can show (a sender, a network,
quality) is a record or numbers as they would be measured.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from core_engine.plan import StepPlan, StepResult
from core_engine.variables import VARIABLES
from experiments import loadgen
from experiments.advisor.causes import CAUSES
from experiments.advisor.ceilings import Ceilings
from experiments.advisor.diagnose import FOUND, HEALTHY, NOT_ENOUGH, Diagnosis, diagnose
from experiments.advisor.evidence import LARGEST, NUMBERS, SHARE, SIGNED, YES, Evidence, evidence_of
from experiments.advisor.finding import OUTSIDE, Missing
from experiments.advisor.from_run import document_of
from experiments.metrics.objectives import parse_slo
from experiments.spec import BenchSpec
from experiments.targets import measure, target_for
from experiments.targets.simulator import SimulatorTarget
from tests.experiments import fakes
from tests.experiments.records import record, request
from tests.experiments.records import step as made_step

FAST = {"base_s": 0.005, "token_s": 0.00005}
"""Of the fake executor: 5 ms a step and next to nothing a token, as a device with room to spare."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> fakes.VirtualClock:
    made = fakes.VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    return made


def on_engine(clock: fakes.VirtualClock, speed: dict[str, float], *, slo: str | None = None, **spec: Any) -> Evidence:
    """Evidence of one run on the engine with a virtual clock."""
    checked = BenchSpec.from_dict({"num_requests": 24, **spec})
    rig = fakes.FakeRig(clock, speed=lambda _: speed)
    target = target_for(checked, rig)  # type: ignore[arg-type]
    workload = target.draw(checked)
    found = measure(checked, target, workload, around={})
    price = checked.price_per_device_hour
    return evidence_of(document_of(found.record, price_per_device_hour=price), "a run", slo=slo, strict=False)


def simulated(**spec: Any) -> Evidence:
    """Evidence of one simulated replica, its steps held against the card's ceilings."""
    from experiments.simulator.deployment import SimulateSpec, deployed

    slo = spec.pop("slo", None)
    checked = SimulateSpec.from_dict({"model": "llama-3.1-8b", "gpu": "h100", **spec})
    made = deployed(checked)
    target = SimulatorTarget(made)
    found = measure(checked, target, target.draw(checked), around={})
    ceilings = Ceilings(made.profile.accelerator, made.spec, made.times.weights, made.times.kv_dtype)
    document = document_of(found.record, ceilings=ceilings)
    return evidence_of(document, "a simulated run", slo=slo, strict=False)


def typed(document: dict[str, Any]) -> Evidence:
    return evidence_of(document, "typed in")


def causes_of(found: Diagnosis) -> list[str]:
    return [finding.cause for finding in found.findings]


def top(evidence: Evidence) -> str | None:
    found = diagnose(evidence)
    return None if found.top is None else found.top.cause


# -- healthy ----------------------------------------------------------------------------------------------------------


MET = "ttft_p95=0.5,itl_p99=0.05"


def test_a_healthy_run_has_no_cause_with_and_without_objectives(clock: fakes.VirtualClock) -> None:
    calm = {"workload": "chat", "rate_rps": 1.0, "settings": {"max_num_seqs": 16}}
    found = diagnose(on_engine(clock, FAST, slo=MET, **calm))
    assert found.verdict == HEALTHY and causes_of(found) == []
    assert "ttft_p95" in found.why
    found = diagnose(on_engine(clock, FAST, **calm))
    assert found.verdict == HEALTHY and causes_of(found) == []


def test_a_healthy_simulated_replica_has_no_cause() -> None:
    for slo in ("ttft_p95=0.5,itl_p99=0.05", None):
        found = diagnose(simulated(workload="chat", num_requests=20, rate_rps=4, slo=slo))
        assert found.verdict == HEALTHY and causes_of(found) == []


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_every_cause_is_silent_on_a_healthy_run(cause: Any, clock: fakes.VirtualClock) -> None:
    evidence = on_engine(clock, FAST, slo=MET, workload="chat", rate_rps=1.0, settings={"max_num_seqs": 16})
    answer = cause.match(evidence)
    assert answer is None or isinstance(answer, Missing)


# -- waiting ----------------------------------------------------------------------------------------------------------


SLOW = {"base_s": 0.05, "token_s": 0.0005}


def test_full_seats_and_a_busy_device_are_a_queue(clock: fakes.VirtualClock) -> None:
    load = {"workload": "mixed", "rate_rps": 6.0, "settings": {"max_num_seqs": 8}, "num_requests": 48}
    evidence = on_engine(clock, SLOW, slo="ttft_p95=0.5", **load)
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "queue-bound"
    assert {change.variable for change in found.top.changes} >= {"max_num_seqs", "replicas"}
    assert "kv-memory-bound" not in causes_of(found) and "under-batching" not in causes_of(found)


def test_a_batch_that_waits_for_its_slowest_is_under_batching(clock: fakes.VirtualClock) -> None:
    load = {"workload": "mixed", "rate_rps": 6.0, "settings": {"batching": "static", "max_num_seqs": 8}}
    found = diagnose(on_engine(clock, SLOW, slo="ttft_p95=0.5", **load))
    assert found.top is not None and found.top.cause == "under-batching"
    change = found.top.changes[0]
    assert (change.variable, change.from_value, change.to_value) == ("batching", "static", "continuous")
    queued = next((one for one in found.findings if one.cause == "queue-bound"), None)
    assert queued is None or queued.follows_from == "under-batching"


def test_few_seats_on_an_idle_device_are_under_batching_not_a_queue() -> None:
    evidence = simulated(
        workload="mixed", num_requests=60, rate_rps=20, settings={"max_num_seqs": 2}, slo="ttft_p95=0.5"
    )
    found = diagnose(evidence)
    assert evidence.flops_share is not None and evidence.flops_share < 0.2
    assert found.top is not None and found.top.cause == "under-batching"


def test_too_many_at_once_are_over_admission(clock: fakes.VirtualClock) -> None:
    dear = {"base_s": 0.002, "token_s": 0.0015}  # each sequence lengthens the step
    settings = {"max_num_seqs": 64, "max_num_batched_tokens": 16_384}  # all prompts in one step
    load = {"workload": "equal", "num_requests": 48, "concurrency": 48, "settings": settings}
    evidence = on_engine(clock, dear, slo="itl_p95=0.05", **load)
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "over-admission"
    change = found.top.changes[0]
    assert change.variable == "max_num_seqs" and int(change.to_value or 0) < (evidence.running or 0)
    assert "C44" in {bound.claim for bound in found.top.bounds}


def test_a_late_sender_is_the_client_whatever_the_latency_says() -> None:
    late = [
        request([(100 * i + 900, 1), (100 * i + 910, 1)], id=f"r{i:02}", arrival_ms=50 * i, send_ms=100 * i + 880)
        for i in range(40)
    ]
    made = {**record(*late), "target": {"kind": "endpoint"}}
    evidence = evidence_of(document_of(made), "a run", slo="ttft_p95=0.3", strict=False)
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "client-bound"
    prompt = replace(evidence, lateness_p99_s=0.001, sent_rps=evidence.offered_rps)
    assert "client-bound" not in causes_of(diagnose(prompt))


def test_connections_in_use_are_the_client_only_while_the_server_has_room() -> None:
    used = {"client": {"connection_limit": 8, "in_flight_peak": 8}, "load": {"offered_rps": 20}, "requests_per_s": 9}
    assert top(typed({**used, "load": {**used["load"], "waiting": 0, "running": 8}, "config": {"max_num_seqs": 64}}))
    busy = {**used, "load": {**used["load"], "waiting": 12, "running": 8}, "config": {"max_num_seqs": 8}}
    assert "client-bound" not in causes_of(diagnose(typed(busy)))


# -- steps ------------------------------------------------------------------------------------------------------------


def test_a_long_prompt_is_prefill_bound(clock: fakes.VirtualClock) -> None:
    slow_prompts = {"base_s": 0.005, "token_s": 0.002}
    load = {"workload": "long-doc", "num_requests": 8, "rate_rps": 0.05, "settings": {"prefix_cache": "on"}}
    found = diagnose(on_engine(clock, slow_prompts, slo="ttft_p95=0.5", **load))
    assert found.top is not None and found.top.cause == "prefill-bound"
    assert "queue-bound" not in causes_of(found)


def test_one_sequence_at_a_time_is_bound_by_bandwidth() -> None:
    evidence = simulated(workload="chat", num_requests=6, concurrency=1, slo="itl_p95=0.004")
    found = diagnose(evidence)
    assert evidence.bandwidth_share is not None and evidence.bandwidth_share > 0.6
    assert found.top is not None and found.top.cause == "decode-bandwidth-bound"
    assert [change.variable for change in found.top.changes][:2] == ["weights", "speculation"]
    assert {"C18", "C28"} <= {bound.claim for bound in found.top.bounds}


def test_a_small_target_is_not_told_to_speculate() -> None:
    slow = {
        "itl_s": {"p95": 0.03},
        "steps": {"bandwidth_share": 0.8, "flops_share": 0.02, "batch": 1},
        "slo": "itl_p95=0.01",
    }
    large = diagnose(typed({**slow, "model": {"parameters": 70e9}})).top
    small = diagnose(typed({**slow, "model": {"parameters": 135e6}})).top
    assert large is not None and "speculation" in {change.variable for change in large.changes}
    assert small is not None and "speculation" not in {change.variable for change in small.changes}


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    busy = {"itl_s": {"p95": 0.09}, "steps": {"flops_share": 0.78, "bandwidth_share": 0.35, "batch": 256}}
    found = diagnose(typed({**busy, "load": {"running": 256, "waiting": 0}, "slo": "itl_p95=0.05"}))
    assert found.top is not None and found.top.cause == "decode-compute-bound"
    light = {**busy, "steps": {**busy["steps"], "flops_share": 0.2}}
    assert "decode-compute-bound" not in causes_of(diagnose(typed({**light, "slo": "itl_p95=0.05"})))


class HostBound(fakes.FakeExecutor):
    """Of each step only a fifth is the model's."""

    def execute(self, plan: StepPlan) -> StepResult:
        before = self._clock.now_ns()
        found = super().execute(plan)
        return replace(found, model_s=0.2 * (self._clock.now_ns() - before) / fakes.NS)


def test_steps_of_host_work_are_launch_bound(clock: fakes.VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "FakeExecutor", HostBound)
    settings = {"max_num_seqs": 16, "graph": "off"}
    evidence = on_engine(clock, {"base_s": 0.06, "token_s": 0.0}, slo="itl_p95=0.02", workload="chat", rate_rps=0.2,
                         settings=settings)  # fmt: skip
    assert evidence.host_share == pytest.approx(0.8, abs=0.05)
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "launch-bound"
    assert found.top.changes[0].variable == "graph" and found.top.changes[0].to_value == "on"


def test_gaps_beside_prompts_are_interference(clock: fakes.VirtualClock) -> None:
    speed = {"base_s": 0.02, "token_s": 0.001}
    load = {"workload": "long-prompts", "num_requests": 40, "rate_rps": 4.0}
    settings = {"max_num_seqs": 32, "chunked_prefill": "off", "max_num_batched_tokens": 1024}
    evidence = on_engine(clock, speed, slo="itl_p99=0.1", **load, settings=settings)
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "interference-jitter"
    assert [change.variable for change in found.top.changes] == [
        "chunked_prefill", "max_num_batched_tokens", "disaggregation",
    ]  # fmt: skip
    assert evidence.itl_with_prefill_s is not None and evidence.itl_without_prefill_s is not None


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_full_pool_that_preempts_is_kv_memory(clock: fakes.VirtualClock) -> None:
    settings = {"kv_memory_mib": 8, "max_num_seqs": 16}  # 512 tokens with the fake's 64 a MiB
    load = {"workload": "mixed", "num_requests": 24, "rate_rps": 8.0, "settings": settings}
    evidence = on_engine(clock, FAST, slo="ttft_p95=0.2", **load)
    assert evidence.preemptions or evidence.admission_waits
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "kv-memory-bound"
    assert found.top.changes[0].variable == "kv_dtype"
    assert found.top.changes[0].flags()["vLLM"] == "--kv-cache-dtype"


def test_weights_that_leave_no_room_come_before_the_full_pool() -> None:
    from ledger.hardware import accelerator

    card = accelerator("t4")
    weights = 14.5e9  # 7B in 16 bits
    document = {
        "memory": {"weights_bytes": weights, "capacity_bytes": card.memory_bytes, "kv_pool_bytes": 0.6e9},
        "kv": {"used_share": 0.99},
        "counters": {"preemptions": 12},
        "completed": 40,
        "slo": "ttft_p95=1",
        "ttft_s": {"p95": 6.0},
    }
    found = diagnose(typed(document))
    assert causes_of(found)[:2] == ["weights-memory-bound", "kv-memory-bound"]
    assert found.findings[1].follows_from == "weights-memory-bound"
    roomy = {**document, "memory": {**document["memory"], "capacity_bytes": 80e9, "kv_pool_bytes": 50e9}}
    assert causes_of(diagnose(typed(roomy)))[0] == "kv-memory-bound"


def test_a_full_pool_that_nobody_waits_for_is_no_cause() -> None:
    full = {"kv": {"used_share": 0.97}, "load": {"waiting": 0, "running": 40}, "counters": {"preemptions": 0}}
    full |= {"slo": "ttft_p95=1", "ttft_s": {"p95": 0.3}}
    assert diagnose(typed(full)).verdict == HEALTHY


def test_a_shared_prefix_without_a_cache_is_a_cache_miss(clock: fakes.VirtualClock) -> None:
    speed = {"base_s": 0.005, "token_s": 0.001}
    load = {"workload": "shared-prefix", "num_requests": 12, "rate_rps": 0.3}
    without = on_engine(clock, speed, slo="ttft_p95=0.2", **load, settings={"prefix_cache": "off"})
    found = diagnose(without)
    assert without.repeated_share is not None and without.repeated_share > 0.5
    assert found.top is not None and found.top.cause == "cache-miss"
    assert (found.top.changes[0].variable, found.top.changes[0].to_value) == ("prefix_cache", "on")
    with_cache = on_engine(clock, speed, slo="ttft_p95=0.2", **load, settings={"prefix_cache": "on"})
    assert "cache-miss" not in causes_of(diagnose(with_cache))


# -- what an optimisation gives and takes -----------------------------------------------------------------------------


C37 = {"counters": {"alpha": 0.3}, "speculation": {"k": 4, "c": 0.169, "v": 1.0}, "config": {"speculation": "draft"}}


def test_the_case_of_a_poor_draft_is_a_backfire_and_a_good_one_is_not() -> None:
    found = diagnose(typed({**C37, "slo": "itl_p95=0.02", "itl_s": {"p95": 0.03}}))
    assert found.top is not None and found.top.cause == "speculation-backfire"
    assert (found.top.changes[0].variable, found.top.changes[0].to_value) == ("speculation", "off")
    good = {**C37, "counters": {"alpha": 0.85}, "speculation": {"k": 4, "c": 0.05, "v": 1.05}}
    assert "speculation-backfire" not in causes_of(diagnose(typed(good)))
    rate = {**C37, "counters": {"acceptance_rate": 0.106}}  # the same alpha, as logs report it
    assert top(typed(rate)) == "speculation-backfire"


def test_what_was_measured_as_a_whole_outweighs_the_parts() -> None:
    slower = {"speculation": {"k": 4, "speedup": 0.85}, "config": {"speculation": "eagle"}}
    assert top(typed(slower)) == "speculation-backfire"
    faster = {**C37, "speculation": {**C37["speculation"], "speedup": 1.3}}
    assert "speculation-backfire" not in causes_of(diagnose(typed(faster)))


def test_drafts_on_the_engine_that_cost_more_than_they_save_are_a_backfire(clock: fakes.VirtualClock) -> None:
    dear = {"base_s": 0.001, "token_s": 0.01}  # a verified token costs what a decoded one does
    settings = {"speculation": "ngram", "max_num_seqs": 4, "draft_control": "adaptive"}
    evidence = on_engine(clock, dear, workload="copy", num_requests=10, rate_rps=1.0, settings=settings)
    if evidence.speculation_speedup is None or evidence.speculation_speedup > 0.98:
        pytest.fail(f"the run does not show it: {evidence.speculation_speedup}")
    assert "speculation-backfire" in causes_of(diagnose(evidence))


def test_a_slice_that_the_mean_hides_is_a_quality_risk() -> None:
    lossy = {
        "quality": {"drop": 0.004, "slices": {"arithmetic": 0.09, "chat": 0.0}},
        "config": {"weights": "w4a16-rtn"},
    }
    found = diagnose(typed(lossy))
    assert found.top is not None and found.top.cause == "quality-risk"
    assert found.top.changes[0].to_value == "w8a8"
    fine = {**lossy, "quality": {"drop": 0.002, "slices": {"arithmetic": 0.01}}}
    assert "quality-risk" not in causes_of(diagnose(typed(fine)))
    assert top(typed({"quality": {"evaluated": False}, "config": {"kv_dtype": "int4"}})) == "quality-risk"


def test_fast_enough_and_too_dear_is_cost_bound(clock: fakes.VirtualClock) -> None:
    load = {"workload": "chat", "rate_rps": 0.5, "price_per_device_hour": 100.0}
    found = diagnose(on_engine(clock, FAST, slo="ttft_p95=1,cost_per_request=0.001", **load))
    assert found.top is not None and found.top.cause == "cost-bound"
    slow = diagnose(on_engine(clock, FAST, slo="ttft_p95=0.0001,cost_per_request=0.001", **load))
    assert "cost-bound" not in causes_of(slow)


def test_a_budget_of_nothing_is_missed_by_any_cost() -> None:
    found = diagnose(typed({"slo": "ttft_p95=1,cost_per_request=0", "ttft_s": {"p95": 0.4}, "cost_per_request": 0.01}))
    assert found.top is not None and found.top.cause == "cost-bound"


def test_time_outside_of_the_steps_is_network_or_framework() -> None:
    steps = [made_step(i, 1000 + 10 * i, 1000 + 10 * i, 1009 + 10 * i, 1010 + 10 * i) for i in range(4)]
    rows = [[i, "prefill" if i == 0 else "decode", 1] for i in range(4)]
    slow = request([(1500 + 400 * i, 1) for i in range(4)], arrival_ms=990, steps=rows, admit_ns=1_000_000_000)
    made = record(slow, steps=steps)
    evidence = evidence_of(document_of(made), "a run", slo="e2e_p95=0.2", strict=False)
    assert evidence.unexplained_s is not None and evidence.unexplained_s > 1
    assert top(evidence) == "network-framework-bound"
    assert top(typed({"network": {"round_trip_s": 0.18}, "ttft_s": {"p50": 0.3}})) == "network-framework-bound"


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_run_whose_requests_failed_is_not_healthy() -> None:
    well = {"slo": "ttft_p95=1", "ttft_s": {"p95": 0.4}, "completed": 90}
    assert diagnose(typed({**well, "failed": 0})).verdict == HEALTHY
    failed = diagnose(typed({**well, "failed": 10}))
    assert failed.verdict == NOT_ENOUGH and "10 of 100" in failed.why


def test_an_objective_on_errors_that_is_missed_is_not_called_met() -> None:
    asked = {"slo": "ttft_p95=1,error_rate=0.001", "ttft_s": {"p95": 0.4}, "completed": 995}
    missed = diagnose(typed({**asked, "failed": 5}))
    assert missed.verdict == NOT_ENOUGH and "5 of 1000" in missed.why
    assert diagnose(typed({**asked, "failed": 0})).verdict == HEALTHY


def test_an_objective_without_a_number_is_named_with_what_to_measure() -> None:
    part = diagnose(typed({"slo": "ttft_p95=1,itl_p99=0.05,error_rate=0.01", "ttft_s": {"p95": 0.4}}))
    assert part.verdict == HEALTHY and "met: ttft_p95; not judged: itl_p99, error_rate" in part.why
    told = {one["name"]: one["measure"] for one in part.to_json()["unjudged"]}
    assert told["itl_p99"].startswith("itl_s.p99, s: trilemma bench") and told["error_rate"].startswith("failed")
    core = {"load": {"waiting": 0, "running": 1}, "kv": {"used_share": 0.1}, "counters": {"preemptions": 0},
            "config": {"max_num_seqs": 8}}  # fmt: skip
    none = diagnose(typed({"slo": "itl_p99=0.05", **core}))
    assert none.verdict == NOT_ENOUGH and "itl_p99" in none.why
    assert diagnose(typed(core)).verdict == HEALTHY and not diagnose(typed(core)).unjudged


def test_nothing_known_and_a_missed_objective_ask_for_measurements() -> None:
    found = diagnose(Evidence())
    assert found.verdict == NOT_ENOUGH and found.missing and all(one.measures() for one in found.missing)
    missed = diagnose(typed({"slo": "ttft_p95=1", "ttft_s": {"p95": 4.0}}))
    assert missed.verdict == NOT_ENOUGH and "ttft_p95" in missed.why
    assert "queue-bound" in {one.cause for one in missed.missing}


def test_no_numbers_however_odd_make_a_diagnosis_fail() -> None:
    chance = random.Random(3)
    values: dict[str, tuple[Any, ...]] = {YES: (True, False), SHARE: (0, 0.3, 0.95, 1), SIGNED: (-1, 0, 0.02, 1)}
    settings: dict[str, tuple[Any, ...]] = {
        "max_num_seqs": (0, 8, LARGEST), "num_draft_tokens": (0, 4, LARGEST), "kv_memory_mib": (0, LARGEST),
        "speculation": ("off", "draft", "odd"), "weights": ("none", "w4a16-awq"), "kv_dtype": ("auto", "int4"),
        "batching": ("static", "continuous"), "prefix_cache": ("on", "off"),
    }  # fmt: skip
    slos = (None, "ttft_p95=0", "itl_p99=0,ttft_p95=1", "cost_per_request=0,error_rate=0,quality_drop=0")
    for _ in range(400):
        share = chance.random()
        found: dict[str, Any] = {
            name: float(value) if meta["unit"] != YES else value
            for name, meta in NUMBERS.items()
            if chance.random() < share
            for value in [chance.choice(values.get(meta["unit"], (0, 1e-300, 1e-3, 1, 64, LARGEST)))]
        }
        config = {name: chance.choice(known) for name, known in settings.items() if chance.random() < 0.5}
        evidence = replace(Evidence(**found), config=config, objectives=parse_slo(chance.choice(slos)))
        told = diagnose(evidence)
        assert told.to_json() and all(0 <= one.score <= 1 for one in told.findings)


def test_a_cause_stands_before_what_follows_from_it_and_weighs_as_much() -> None:
    found = diagnose(typed({
        "slo": "ttft_p95=1", "ttft_s": {"mean": 4.0, "p95": 9.0}, "latency_breakdown": {"queue_s": 3.8},
        "load": {"waiting": 12, "running": 3}, "steps": {"device_utilisation": 0.2}, "config": {"batching": "static"},
    }))  # fmt: skip
    assert found.verdict == FOUND and found.top is not None and found.top.cause == "under-batching"
    assert all(finding.score <= found.top.score for finding in found.findings)


def test_changes_name_a_variable_of_the_registry_or_one_outside_and_a_value_that_it_accepts() -> None:
    from core_engine.variables import parse_value

    everything = typed({
        "slo": "ttft_p95=0.1,itl_p99=0.01,cost_per_request=1", "cost_per_request": 2.0,
        "ttft_s": {"mean": 2.0, "p95": 4.0}, "itl_s": {"p50": 0.02, "p99": 0.2},
        "latency_breakdown": {"queue_s": 1.0, "prefill_s": 0.9, "decode_s": 1.0},
        "load": {"waiting": 4, "running": 8, "prompt_tokens": 4000}, "kv": {"used_share": 0.99},
        "steps": {"host_share": 0.5, "bandwidth_share": 0.55}, "counters": {"preemptions": 4},
        "prefix": {"repeated_share": 0.6},
        "config": {
            "prefix_cache": "off", "graph": "off", "chunked_prefill": "off", "max_num_seqs": 8, "batching": "static",
        },
    })  # fmt: skip
    found = diagnose(everything)
    assert len(found.findings) >= 3
    for _, change in found.changes():
        assert change.variable in VARIABLES or change.variable in OUTSIDE
        if change.in_registry and change.to_value is not None:
            parse_value(change.variable, change.to_value)
            assert change.to_value != change.from_value
        assert change.why and change.refuted_by


def test_names_and_meanings_are_those_of_the_documentation() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "advisor.md").read_text("utf-8")
    listed = [
        line.split("`")[1] for line in text.split("## Numbers typed in")[0].splitlines() if line.startswith("| `")
    ]
    assert sorted(listed) == sorted(cause.name for cause in CAUSES)
    for cause in CAUSES:
        assert set(cause.explains) <= set(listed)


def test_a_queue_names_the_gaps_that_more_seats_would_push_over_their_objective() -> None:
    document = {"latency_breakdown": {"queue_s": 3.0, "prefill_s": 0.2}, "load": {"waiting": 40, "running": 64},
                "config": {"max_num_seqs": 64}, "ttft_s": {"p95": 5.0}, "itl_s": {"p95": 0.0485},
                "slo": "ttft_p95=1,itl_p95=0.05"}  # fmt: skip
    found = diagnose(evidence_of(document, "typed in")).findings[0]
    assert found.cause == "queue-bound"
    assert "itl_p95 is 48.5 ms, near its objective of 50 ms: more seats lengthen it" in [
        one.text for one in found.lines
    ]
    document["itl_s"] = {"p95": 0.02}
    assert not any("near its" in one.text for one in diagnose(evidence_of(document, "typed in")).findings[0].lines)


def test_what_the_evidence_has_is_not_asked_for() -> None:
    document = {"ttft_s": {"p95": 5.0}, "counters": {"prefix_hit_rate": 0.1}}
    missing = {one.cause: one.needs for one in diagnose(evidence_of(document, "typed in")).missing}
    assert missing["cache-miss"] == ("repeated_share",)
