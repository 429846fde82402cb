"""A replica decides as the engine does, counts what it should, and refuses what can never fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core_engine.executor.roofline_executor import Acceptance, SimulatedMemory
from core_engine.plan import StepPlan
from core_engine.request import SamplingParams
from core_engine.simulation.fleet import Side, serve_apart
from core_engine.simulation.gaps import MOST_EXACT, Gaps
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.model import simulated_engine
from core_engine.simulation.replica import Replica
from core_engine.simulation.routers import router
from ledger.errors import InputError
from ledger.links import Link
from ledger.speculation import tokens_per_cycle
from tests.core_engine.simulation.made import NS, config_of, jobs_of, served, times_of


def described(plan: StepPlan) -> list[Any]:
    rows = [(row.request_id, row.start, row.tokens, row.blocks) for row in plan.rows]
    return [plan.index, plan.admitted, plan.preempted, rows]


@pytest.mark.parametrize("settings", [{}, {"batching": "dynamic"}, {"kv_dtype": "int8"}, {"chunked_prefill": "off"}])
def test_replica_and_engine_take_the_same_steps_at_the_same_times(settings: dict[str, Any]) -> None:
    times, config = times_of("llama-3.2-1b", "l4"), config_of(**settings)
    memory = SimulatedMemory(120, 1000, 1_000_000)
    jobs = [
        replace(job, token_ids=[place % 7 + job.index % 5 for place in range(job.prompt_tokens)])
        for job in jobs_of(60, 40.0, prompt=400)
    ]
    engine = simulated_engine(config, times, memory)
    plans: list[Any] = []
    execute = engine.executor.execute

    def watched(plan: StepPlan) -> Any:
        plans.append(described(plan))
        return execute(plan)

    engine.executor.execute = watched  # type: ignore[method-assign]
    to_send = list(jobs)
    engine.expect_more_arrivals(True)
    while to_send or engine.has_unfinished():
        while to_send and to_send[0].arrival_ns <= engine.clock.now_ns():
            job = to_send.pop(0)
            params = SamplingParams(max_tokens=job.max_tokens, answer_tokens=job.output_tokens, ignore_eos=True)
            engine.add(list(job.token_ids or ()), params, request_id=f"r{job.index:02d}", arrival_ns=job.arrival_ns)
        engine.expect_more_arrivals(bool(to_send))
        steps = engine.trace.num_steps
        engine.step()
        if engine.trace.num_steps == steps:  # nothing to compute yet: on to the next arrival, or until admission acts
            oldest = engine.scheduler.waiting[0].log.arrival_ns if engine.scheduler.waiting else None
            acts = [] if oldest is None else [oldest + round(config.max_wait_ms * 1e6)]
            moments = [job.arrival_ns for job in to_send[:1]] + acts
            engine.clock.reach_ns(min(moments))  # type: ignore[attr-defined]
    found: list[Any] = []
    watch = {"on_plan": lambda plan: found.append(described(plan))}
    ended, _ = served(jobs, times=times, blocks=120, options=watch, **settings)
    assert found == plans
    record = engine.record()
    assert record["provenance"] == "simulated" and record["memory"]["process_rss_bytes"] is None
    emissions = {request["id"]: [tuple(pair) for pair in request["emissions"]] for request in record["requests"]}
    assert {f"r{item.job.index:02d}": list(item.emissions) for item in ended} == emissions


def test_a_request_that_can_never_fit_is_refused_and_the_others_are_served() -> None:
    jobs = [Job(0, 0, 5000, 10, 10), Job(1, 0, 50, 10, 10)]
    ended, _ = served(jobs, blocks=100)
    assert [item.reason for item in ended] == ["refused", "stop"]
    assert ended[0].first_ns is None and ended[1].output_tokens == 10


def test_an_answer_that_outgrows_the_pool_alone_ends_by_length() -> None:
    ended, _ = served([Job(0, 0, 100, 900, 900)], blocks=10)
    assert ended[0].reason == "length" and ended[0].output_tokens == 10 * 16 + 1 - 100


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_drafts_bring_as_many_tokens_a_pass_as_their_acceptance_says(alpha: float) -> None:
    jobs = [Job(index, 0, 20, 400, 400) for index in range(8)]
    settings = {"speculation": "ngram", "num_draft_tokens": 3, "draft_control": "fixed"}
    ended, (replica,) = served(jobs, options={"acceptance": Acceptance(alpha)}, **settings)
    assert all(item.output_tokens == 400 for item in ended)
    passes = replica.num_steps - 1  # the first one computes prompts
    assert 400 / passes == pytest.approx(tokens_per_cycle(alpha, 3), rel=0.1)
    plain, (other,) = served(jobs)
    assert other.num_steps == 400 and [item.output_tokens for item in plain] == [400] * 8


def test_drafts_are_paid_for() -> None:
    jobs = [Job(0, 0, 20, 100, 100)]
    settings = {"speculation": "ngram", "num_draft_tokens": 4, "draft_control": "fixed"}

    def took(draft_s: float) -> int:
        return served(jobs, options={"acceptance": Acceptance(0.0, draft_s)}, **settings)[0][0].last_ns or 0

    # 99 steps after the first; the last ones have no room for drafts of full length.
    assert took(0.001) - took(0.0) == pytest.approx(4 * 0.001 * 99 * NS, rel=0.05)


def test_prefix_aware_routing_finds_more_of_the_prompts_than_round_robin() -> None:
    jobs = [
        Job(index, index * NS // 20, 1000, 20, 20, tuple(1000 * (index % 7) + place for place in range(15)), 64)
        for index in range(160)
    ]

    def found(route: str) -> int:
        return sum(item.prefix_hit_tokens for item in served(jobs, replicas=4, route=route, blocks=600)[0])

    assert found("prefix-aware") > found("round-robin") * 1.1


def test_least_loaded_keeps_replicas_even_where_round_robin_does_not() -> None:
    # Every second request is a hundred times as long, and round robin sends those all to one replica.
    jobs = [Job(index, index * NS // 50, 50, 500 if index % 2 else 5, 500) for index in range(60)]
    slow, fast = (served(jobs, replicas=2, route=route)[0] for route in ("round-robin", "least-loaded"))
    assert max(item.last_ns or 0 for item in fast) < max(item.last_ns or 0 for item in slow)


def apart(jobs: list[Job], link: Link, *, lanes: int = 1, **settings: Any) -> tuple[list[Ended], Any]:
    times, config, ended = times_of(), config_of(**settings), []

    def make(number: int, on_end: Any, receives: bool) -> Replica:
        memory = SimulatedMemory(4000, 1)
        return Replica(config, times, memory, on_end, number=number, receives=receives, keep_events=True)

    done = serve_apart(
        jobs,
        Side(2, lambda number, on_end: make(number, on_end, False), router("least-loaded")),
        Side(2, lambda number, on_end: make(number, on_end, True), router("least-loaded")),
        link,
        131_072,
        ended.append,
        lanes=lanes,
    )
    return sorted(ended, key=lambda item: item.job.index), done


def test_prompts_given_as_tokens_go_where_their_beginning_was() -> None:
    begin = [[family] * 128 for family in (1, 2)]
    jobs = [Job(index, index * NS, 130, 3, 3, token_ids=[*begin[index // 2 % 2], index, index]) for index in range(8)]
    ended, _ = served(jobs, replicas=2, route="prefix-aware")
    first, second = ({item.replica for item in ended if item.job.index // 2 % 2 == family} for family in (0, 1))
    # All replicas are idle at every arrival: only the prefix tells where a family's later requests go.
    assert len(first) == len(second) == 1
    assert sum(item.prefix_hit_tokens for item in ended) == 6 * 128


def test_waiting_after_the_first_token_is_told_apart() -> None:
    ended, _ = served(jobs_of(60, 200.0, prompt=300, output=200), blocks=60)
    assert any(item.preemptions and item.late_queue_ns for item in ended)
    for item in ended:
        assert 0 <= item.late_queue_ns <= item.queue_ns
        early_ns = item.queue_ns - item.late_queue_ns
        assert item.first_ns is not None and item.last_ns is not None
        assert early_ns < item.first_ns - item.job.arrival_ns
        assert item.late_queue_ns <= item.last_ns - item.first_ns


def test_cards_of_a_replica_send_their_shares_side_by_side() -> None:
    jobs = jobs_of(20, 40.0)
    (_, one), (_, four) = (apart(jobs, Link(0.0, 1e9), lanes=lanes) for lanes in (1, 4))
    assert four.transfer_bytes == one.transfer_bytes and sum(four.transfer_ns) < 0.3 * sum(one.transfer_ns)


def test_an_answer_that_may_have_one_token_is_not_moved() -> None:
    job = Job(0, 0, 50, 9, 1)
    (ended,), done = apart([job], Link(0.0, 1e9))
    assert ended.output_tokens == 1 and ended.job == job and not done.transfer_ns


def test_prefill_and_decode_apart_give_every_token_and_move_every_prompt_once() -> None:
    jobs = jobs_of(100, 40.0)
    ended, done = apart(jobs, Link(1e-5, 50e9))
    assert [item.job for item in ended] == jobs
    assert all(item.output_tokens == item.job.output_tokens and item.reason == "stop" for item in ended)
    moved = [job for job in jobs if job.output_tokens > 1]
    assert done.transfer_bytes == sum(job.prompt_tokens for job in moved) * 131_072
    assert len(done.transfer_ns) == len(moved) and min(done.transfer_ns) >= 1e-5 * NS
    for item in ended:
        moments = [moment for moment, _ in item.emissions]
        assert moments == sorted(moments) and sum(count for _, count in item.emissions) == item.output_tokens
    # Decode replicas compute no prompts: every step of theirs is of single tokens.
    assert sum(replica.num_steps for replica in done.decode) >= max(job.output_tokens for job in jobs) - 1


def test_a_slow_link_delays_the_second_token_and_not_the_first() -> None:
    jobs = [Job(index, index * NS, 500, 20, 20) for index in range(5)]
    fast, _ = apart(jobs, Link(0.0, 1e12))
    slow, _ = apart(jobs, Link(0.0, 500 * 131_072 / 0.25))
    for one, other in zip(fast, slow, strict=True):
        assert one.first_ns == other.first_ns
        assert (other.last_ns or 0) - (one.last_ns or 0) == pytest.approx(0.25 * NS, rel=0.01)


def test_gaps_are_exact_while_few_and_within_half_a_percent_when_many() -> None:
    gaps, values = Gaps(), list(range(1, MOST_EXACT + 2))
    for value in values[:1000]:
        gaps.add(value, 2)
    assert gaps.is_exact and gaps.percentile(50) == 500.5 and gaps.percentile(100) == 1000
    for value in values[1000:]:
        gaps.add(value, 2)
    assert not gaps.is_exact and gaps.count == 2 * len(values)
    for share in (10, 50, 99, 100):
        assert gaps.percentile(share) == pytest.approx(share / 100 * len(values), rel=0.006)
    assert Gaps().percentile(50) is None


def test_acceptance_and_routers_are_checked() -> None:
    for wrong in (-0.1, 1.1):
        with pytest.raises(InputError, match="acceptance"):
            Acceptance(wrong)
    with pytest.raises(InputError, match="draft_s"):
        Acceptance(0.5, -1.0)
    with pytest.raises(InputError, match="router"):
        router("magic")
