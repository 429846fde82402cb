"""The schedule of a workload, as any driver follows it: each request once, in time, with its conversation before it."""

from __future__ import annotations

import heapq
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Schedule, Workload, WorkloadRequest, whole_prompt

CONVERSATIONS = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=8)


def workload_of(conversations: list[list[int]], clients: int | None) -> Workload:
    """Conversations as the pauses of their turns; one starts every 10 ns."""
    requests: list[WorkloadRequest] = []
    for session, pauses in enumerate(conversations):
        parent = None
        for think_ns in pauses:
            ids = (len(requests), 1000)
            requests.append(WorkloadRequest(ids, 2, 2, 10 * session, session, parent, think_ns))
            parent = len(requests) - 1
    return Workload("test", 0, tuple(requests), None, "test", concurrency=clients)


@settings(max_examples=60)
@given(CONVERSATIONS, st.none() | st.integers(1, 5), st.integers(0, 10_000), st.sampled_from([0.0, 0.2]))
def test_every_request_is_sent_once_in_its_time_or_lost_with_its_conversation(
    conversations: list[list[int]], clients: int | None, seed: int, failing: float
) -> None:
    workload, source = workload_of(conversations, clients), random.Random(seed)
    schedule = Schedule(workload)
    flying: list[tuple[int, int]] = []
    sent: dict[int, int] = {}
    ends: dict[int, int] = {}
    lost: set[int] = set()
    answers: dict[int, tuple[int, int]] = {}
    now = 0
    while schedule.unfinished():
        due_ns = schedule.next_due_ns()
        if due_ns is not None and (not flying or due_ns <= flying[0][0]):
            now = max(now, due_ns)
            for due in schedule.take_due(now):
                assert due.number not in sent and due.due_ns <= now
                assert due.prompt_token_ids == whole_prompt(workload, due.number, answers)
                sent[due.number] = due.due_ns
                heapq.heappush(flying, (now + source.randrange(100), due.number))
            assert clients is None or len(flying) <= clients
            continue
        now, number = heapq.heappop(flying)
        ends[number] = now
        if source.random() < failing:
            lost |= set(schedule.failed(number, now))
        else:
            answers[number] = (2000 + number, 3000)
            schedule.ended(number, now, answers[number])
    assert set(sent) | lost == set(range(len(workload.requests))) and not set(sent) & lost
    for number, due_ns in sent.items():
        request = workload.requests[number]
        if request.parent is not None:
            assert due_ns == ends[request.parent] + request.think_ns
        elif clients is None:
            assert due_ns == request.arrival_ns
        else:
            free = {0} | {end + request.think_ns for end in ends.values()}
            assert due_ns in free


def test_nothing_is_due_while_the_only_client_waits() -> None:
    schedule = Schedule(workload_of([[0], [7]], clients=1))
    (first,) = schedule.take_due(0)
    assert schedule.next_due_ns() is None and schedule.unfinished()
    schedule.ended(first.number, 100)
    assert schedule.next_due_ns() == 107
    assert schedule.take_due(106) == []
    assert [due.due_ns for due in schedule.take_due(107)] == [107]


def test_only_answers_that_a_turn_follows_are_asked_for() -> None:
    schedule = Schedule(workload_of([[0, 0], [0]], clients=None))
    assert [schedule.needs_answer(number) for number in range(3)] == [True, False, False]
