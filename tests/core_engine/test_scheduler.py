"""The scheduler alone, with an executor that has no weights."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core_engine.admission import ContinuousAdmission, DynamicAdmission, StaticAdmission
from core_engine.blocks import BlockPool
from core_engine.kv_layout import PagedLayout
from core_engine.plan import StepPlan, StepResult
from core_engine.request import Request, RequestLog, SamplingParams, State
from core_engine.scheduler import Scheduler


def make_request(index: int, prompt: int, output: int, arrival_ns: int = 0) -> Request:
    """A request of `prompt` tokens that ends after `output` more."""
    params = SamplingParams(max_tokens=output)
    return Request(f"r{index}", index, list(range(prompt)), prompt, params, 0, RequestLog(arrival_ns, arrival_ns))


def scheduler_of(
    policy: object, blocks: int = 64, block_size: int = 4, budget: int = 32, chunked: bool = True
) -> Scheduler:
    return Scheduler(PagedLayout(BlockPool(blocks, block_size)), policy, budget, chunked=chunked)  # type: ignore[arg-type]


def run_step(scheduler: Scheduler, now_ns: int = 0) -> StepPlan:
    """Plan, pretend every sampling row sampled token 5, commit, and end those that reached their length."""
    plan = scheduler.plan(now_ns)
    result = StepResult(tuple(5 if row.sample else None for row in plan.rows), ((),) * len(plan.rows))
    for request, _ in scheduler.commit(plan, result):
        if request.num_output_tokens >= request.params.max_tokens:
            scheduler.finish(request, "length", now_ns)
    return plan


def ids_of(plan: StepPlan) -> list[str]:
    return [row.request_id for row in plan.rows]


def test_static_batching_waits_for_a_full_batch_while_more_are_to_come() -> None:
    scheduler = scheduler_of(StaticAdmission(2))
    scheduler.more_arrivals = True
    scheduler.add(make_request(0, 4, 2))
    assert ids_of(run_step(scheduler)) == []
    scheduler.add(make_request(1, 4, 2))
    assert ids_of(run_step(scheduler)) == ["r0", "r1"]


def test_static_batching_starts_a_part_batch_when_nobody_else_will_come() -> None:
    scheduler = scheduler_of(StaticAdmission(8))
    scheduler.add(make_request(0, 4, 2))
    assert ids_of(run_step(scheduler)) == ["r0"]


def test_static_batching_holds_slot_and_blocks_until_the_slowest_ends() -> None:
    scheduler = scheduler_of(StaticAdmission(2))
    short, long, later = make_request(0, 4, 1), make_request(1, 4, 3), make_request(2, 4, 1)
    for request in (short, long, later):
        scheduler.add(request)
    run_step(scheduler, 1)
    assert short.state is State.HELD and short.blocks and short.log.release_ns is None
    assert ids_of(run_step(scheduler, 2)) == ["r1"]
    run_step(scheduler, 3)
    assert (short.log.finish_ns, short.log.release_ns, long.log.release_ns) == (1, 3, 3)
    assert ids_of(run_step(scheduler, 4)) == ["r2"]
    assert scheduler.pool.num_used == 0


def test_continuous_batching_fills_a_freed_slot_at_the_next_step() -> None:
    scheduler = scheduler_of(ContinuousAdmission(2))
    for index, output in enumerate((1, 3, 2)):
        scheduler.add(make_request(index, 4, output))
    assert ids_of(run_step(scheduler)) == ["r0", "r1"]
    assert ids_of(run_step(scheduler)) == ["r1", "r2"]


def test_dynamic_batching_starts_when_the_oldest_has_waited_its_window() -> None:
    scheduler = scheduler_of(DynamicAdmission(4, max_wait_ns=100))
    scheduler.more_arrivals = True
    scheduler.add(make_request(0, 4, 2, arrival_ns=10))
    assert ids_of(run_step(scheduler, 109)) == []
    assert ids_of(run_step(scheduler, 110)) == ["r0"]


def test_prefill_chunks_share_the_budget_with_running_decodes() -> None:
    scheduler = scheduler_of(ContinuousAdmission(4), budget=10)
    scheduler.add(make_request(0, 4, 5))
    run_step(scheduler)
    scheduler.add(make_request(1, 20, 5))
    assert [row.count for row in run_step(scheduler).rows] == [1, 9]
    assert [row.count for row in run_step(scheduler).rows] == [1, 9]
    assert [row.count for row in run_step(scheduler).rows] == [1, 2]


def test_without_chunking_a_prompt_waits_until_it_fits_a_step_whole() -> None:
    scheduler = scheduler_of(ContinuousAdmission(4), budget=10, chunked=False)
    scheduler.add(make_request(0, 7, 5))
    scheduler.add(make_request(1, 6, 5))
    assert [row.count for row in run_step(scheduler).rows] == [7]
    assert [row.count for row in run_step(scheduler).rows] == [1, 6]


def test_a_failed_step_gives_its_reservations_back() -> None:
    scheduler = scheduler_of(ContinuousAdmission(4))
    scheduler.add(make_request(0, 9, 5))
    free = scheduler.pool.num_free
    scheduler.rollback(scheduler.plan(0))
    assert scheduler.pool.num_free == free
    assert [row.count for row in run_step(scheduler).rows] == [9]


def test_the_youngest_is_preempted_and_resumes_with_all_its_tokens() -> None:
    scheduler = scheduler_of(ContinuousAdmission(2), blocks=4, block_size=4)
    old, young = make_request(0, 7, 6), make_request(1, 7, 6)
    scheduler.add(old)
    scheduler.add(young)
    for now in range(30):
        run_step(scheduler, now)
    assert young.log.preemptions and not old.log.preemptions
    assert (old.num_output_tokens, young.num_output_tokens) == (6, 6)
    assert scheduler.pool.num_used == 0


requests_strategy = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=12
)


@settings(max_examples=300, deadline=None)
@given(
    shapes=requests_strategy,
    policy=st.sampled_from(["continuous", "static", "dynamic"]),
    seqs=st.integers(1, 5),
    budget=st.integers(1, 40),
    spare=st.integers(0, 6),
    block_size=st.sampled_from([1, 4, 16]),
    chunked=st.booleans(),
    aborts=st.sets(st.integers(0, 11)),
)
def test_every_trace_ends_with_each_request_done_and_nothing_owned(
    shapes: list[tuple[int, int, int]],
    policy: str,
    seqs: int,
    budget: int,
    spare: int,
    block_size: int,
    chunked: bool,
    aborts: set[int],
) -> None:
    if not chunked:
        budget = max(budget, max(prompt for prompt, _, _ in shapes))
    needed = max(-(-(prompt + output) // block_size) for prompt, output, _ in shapes)
    policies = {
        "continuous": ContinuousAdmission(seqs),
        "static": StaticAdmission(seqs),
        "dynamic": DynamicAdmission(seqs, max_wait_ns=3),
    }
    scheduler = scheduler_of(policies[policy], needed + spare, block_size, budget, chunked)
    requests = [make_request(i, prompt, output, arrival) for i, (prompt, output, arrival) in enumerate(shapes)]
    pending = sorted(requests, key=lambda request: request.log.arrival_ns)
    for now in range(20_000):
        while pending and pending[0].log.arrival_ns <= now:
            scheduler.add(pending.pop(0))
        scheduler.more_arrivals = bool(pending)
        plan = run_step(scheduler, now)
        assert plan.num_tokens <= budget + (0 if chunked else seqs)
        owned = [block for request in requests for block in request.blocks]
        assert len(owned) == len(set(owned)) == scheduler.pool.num_used
        assert all(request.num_computed <= len(request.tokens) for request in requests)
        assert len(scheduler.running) <= seqs
        for request in requests:
            if request.index in aborts and now == request.log.arrival_ns + 7:
                scheduler.abort(request, now)
        if not pending and not scheduler.has_unfinished():
            break
    assert all(request.state is State.FINISHED for request in requests)
    assert all(
        request.finish_reason == "abort" or request.num_output_tokens == request.params.max_tokens
        for request in requests
    )
    assert scheduler.pool.num_used == 0 and not scheduler.running
