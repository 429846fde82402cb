"""The load generator: open loop by the schedule, honest times, failures recorded."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from experiments import loadgen
from experiments.metrics import compute_metrics
from experiments.workloads import Workload, WorkloadRequest, whole_prompt
from ledger.errors import InputError
from tests.experiments.fakes import NS, FakeExecutor, VirtualClock, fake_loaded


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def engine_of(clock: VirtualClock, **settings: Any) -> Engine:
    speed = {key: settings.pop(key) for key in ("base_s", "token_s") if key in settings}
    config = EngineConfig.from_settings(settings)
    return Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config, **speed))


def workload_of(*requests: tuple[int, int, float]) -> Workload:
    """Requests as (prompt tokens, output tokens, arrival in s), each with a stated limit of 64 tokens above that."""
    made = tuple(
        WorkloadRequest((7,) * prompt, output + 64, output, round(at_s * NS)) for prompt, output, at_s in requests
    )
    return Workload("test", 0, made, None, "poisson")


def test_times_start_at_zero_and_arrivals_are_the_schedules(clock: VirtualClock) -> None:
    record = loadgen.run(engine_of(clock), workload_of((4, 3, 0.0), (4, 3, 0.5)))
    assert [request["arrival_ns"] for request in record["requests"]] == [0, NS // 2]
    first, second = record["requests"]
    assert first["emissions"][0][0] == 14_000_000  # one step: 10 ms and 4 tokens of 1 ms
    assert second["send_ns"] == NS // 2  # idle until the arrival, then sent at once
    assert record["steps"][0]["plan_start_ns"] == 0
    assert record["workload"]["num_requests"] == 2


def test_outputs_have_exactly_the_workloads_lengths(clock: VirtualClock) -> None:
    record = loadgen.run(engine_of(clock), workload_of((5, 9, 0.0), (3, 1, 0.0)))
    assert [len(request["output_token_ids"]) for request in record["requests"]] == [9, 1]
    assert {request["finish_reason"] for request in record["requests"]} == {"stop"}
    assert [request["max_tokens"] for request in record["requests"]] == [73, 65]


def test_latency_counts_from_the_schedule_so_a_slow_engine_queues(clock: VirtualClock) -> None:
    """0.5 s a request, one at a time, 4 arrivals/s: the p99 from the schedule grows with the number of requests."""

    def p99(count: int) -> float:
        engine = engine_of(clock, max_num_seqs=1, base_s=0.25, token_s=0.0)
        record = loadgen.run(engine, workload_of(*((2, 2, number / 4) for number in range(count))))
        return compute_metrics(record)["e2e_s"]["p99"]

    assert p99(40) > 2 * p99(16) > 4 * p99(4) / 2


def test_a_sender_held_up_by_long_steps_is_shown(clock: VirtualClock) -> None:
    engine = engine_of(clock, base_s=3.0)
    record = loadgen.run(engine, workload_of((2, 2, 0.0), (2, 2, 1.0)))
    assert record["requests"][1]["send_ns"] > NS
    assert compute_metrics(record)["offered_load"]["warning"]


def test_refused_requests_are_failures_not_throughput(clock: VirtualClock) -> None:
    record = loadgen.run(engine_of(clock, kv_memory_mib=1, block_size=16), workload_of((200, 4, 0.0), (8, 4, 0.0)))
    refused, served = record["requests"]
    assert refused["finish_reason"] == "error" and "prompt" in refused["error"]
    metrics = compute_metrics(record)
    assert (metrics["completed"], metrics["failed"]) == (1, 1)
    assert len(served["output_token_ids"]) == 4


def test_when_every_request_is_refused_the_reason_is_raised(clock: VirtualClock) -> None:
    with pytest.raises(InputError, match="prompt"):
        loadgen.run(engine_of(clock, kv_memory_mib=1), workload_of((200, 4, 0.0)))


def test_static_batching_waits_for_a_full_batch_only_while_more_arrivals_are_scheduled(clock: VirtualClock) -> None:
    record = loadgen.run(
        engine_of(clock, batching="static", max_num_seqs=2), workload_of((4, 2, 0.0), (4, 2, 1.0), (4, 2, 5.0))
    )
    admitted = [request["admit_ns"] for request in record["requests"]]
    assert admitted[0] == admitted[1] == NS
    assert admitted[2] == 5 * NS


def test_dynamic_batching_starts_after_its_wait(clock: VirtualClock) -> None:
    engine = engine_of(clock, batching="dynamic", max_num_seqs=8, max_wait_ms=100)
    record = loadgen.run(engine, workload_of((4, 2, 0.0), (4, 2, 3.0)))
    assert record["requests"][0]["admit_ns"] == pytest.approx(NS // 10, abs=2_000_000)


def test_cancel_stops_between_two_steps(clock: VirtualClock) -> None:
    looks = iter([False] * 5 + [True])
    with pytest.raises(loadgen.Cancelled):
        loadgen.run(engine_of(clock), workload_of((4, 100, 0.0)), should_cancel=lambda: next(looks))


def test_progress_reaches_the_expected_tokens_and_collection_is_off_meanwhile(clock: VirtualClock) -> None:
    seen: list[tuple[int, bool]] = []
    loadgen.run(
        engine_of(clock),
        workload_of((4, 6, 0.0)),
        on_progress=lambda progress: seen.append((progress.output_tokens, gc.isenabled())),
    )
    assert seen[-1] == (6, False)
    assert gc.isenabled()


def test_shift_leaves_missing_times_missing() -> None:
    record: dict[str, Any] = {
        "steps": [{"index": 3, "plan_start_ns": 10}],
        "requests": [{"admit_ns": None, "arrival_ns": 10, "emissions": [[15, 2]], "preemptions": [[12, None]]}],
    }
    loadgen.shift_times(record, -10)
    assert record["steps"] == [{"index": 3, "plan_start_ns": 0}]
    (request,) = record["requests"]
    assert request == {"admit_ns": None, "arrival_ns": 0, "emissions": [[5, 2]], "preemptions": [[2, None]]}


def turns_of(*requests: dict[str, Any], concurrency: int | None = None) -> Workload:
    """Requests with 4 prompt tokens and an answer of 3, told apart by their tokens, with fields of their own."""
    common = {"max_tokens": 3, "output_tokens": 3, "arrival_ns": 0}
    made = tuple(
        WorkloadRequest(**{"prompt_token_ids": (10 + number,) * 4} | common | fields)
        for number, fields in enumerate(requests)
    )
    return Workload("test", 0, made, None, "closed", concurrency=concurrency)


def ends_of(record: dict[str, Any]) -> list[int]:
    return [request["emissions"][-1][0] for request in record["requests"]]


def arrivals_of(record: dict[str, Any]) -> list[int]:
    return [request["arrival_ns"] for request in record["requests"]]


def test_clients_of_a_closed_loop_send_when_they_are_free_and_wait_for_no_one_else(clock: VirtualClock) -> None:
    lengths = [2, 9, 3, 3]
    workload = turns_of(*({"output_tokens": n, "max_tokens": n} for n in lengths), concurrency=2)
    record = loadgen.run(engine_of(clock), workload)
    ends, arrivals = ends_of(record), arrivals_of(record)
    assert arrivals[:2] == [0, 0]
    assert arrivals[2] == ends[0] and arrivals[3] == ends[2] < ends[1]  # the quick client goes on alone
    running = [sum(a <= moment < e for a, e in zip(arrivals, ends, strict=True)) for moment in arrivals]
    assert max(running) == 2
    assert record["workload"]["concurrency"] == 2


def test_a_pause_comes_between_an_answer_and_the_next_request(clock: VirtualClock) -> None:
    record = loadgen.run(engine_of(clock), turns_of({}, {"think_ns": 2 * NS}, {"think_ns": NS}, concurrency=1))
    ends, arrivals = ends_of(record), arrivals_of(record)
    assert arrivals == [0, ends[0] + 2 * NS, ends[1] + NS]
    assert compute_metrics(record)["ttft_s"]["p99"] < 0.1  # the pause is nobody's latency


def test_static_batching_does_not_wait_for_clients_that_wait_for_it(clock: VirtualClock) -> None:
    engine = engine_of(clock, batching="static", max_num_seqs=8)
    record = loadgen.run(engine, turns_of({}, {}, {}, concurrency=2))
    assert [len(request["output_token_ids"]) for request in record["requests"]] == [3, 3, 3]


def test_a_turn_begins_with_the_prompt_and_the_answer_before_it(clock: VirtualClock) -> None:
    engine = engine_of(clock)
    sent: dict[str, list[int]] = {}
    add = engine.add
    engine.add = lambda ids, *a, **k: (sent.__setitem__(k["request_id"], ids), add(ids, *a, **k))[1]  # type: ignore
    workload = turns_of({"session": 0}, {"session": 0, "parent": 0, "think_ns": NS}, {"session": 0, "parent": 1})
    record = loadgen.run(engine, workload)
    answers = {number: request["output_token_ids"] for number, request in enumerate(record["requests"])}
    assert sent["r01"] == [10] * 4 + answers[0] + [11] * 4
    assert sent["r02"] == sent["r01"] + answers[1] + [12] * 4
    assert tuple(sent["r02"]) == whole_prompt(workload, 2, answers)
    ends = ends_of(record)
    assert arrivals_of(record) == [0, ends[0] + NS, ends[1]]
    assert [request["prompt_tokens"] for request in record["requests"]] == [4, 11, 18]


def test_when_a_turn_fails_those_behind_it_fail_and_its_client_goes_on(clock: VirtualClock) -> None:
    too_long = {"prompt_token_ids": (7,) * 200, "session": 0}
    workload = turns_of(too_long, {"session": 0, "parent": 0}, {"session": 0, "parent": 1}, {}, concurrency=1)
    record = loadgen.run(engine_of(clock, kv_memory_mib=1, block_size=16), workload)
    errors = [request.get("error") for request in record["requests"]]
    assert "prompt" in errors[0] and "r00" in errors[1] and "r00" in errors[2] and errors[3] is None
    assert compute_metrics(record)["failed"] == 3 and compute_metrics(record)["completed"] == 1


def test_speculative_answers_reach_the_next_turn_whole(clock: VirtualClock) -> None:
    workload = turns_of({"output_tokens": 40, "max_tokens": 40}, {"parent": 0})
    record = loadgen.run(engine_of(clock, speculation="ngram", draft_control="fixed"), workload)
    assert [request["prompt_tokens"] for request in record["requests"]] == [4, 48]
