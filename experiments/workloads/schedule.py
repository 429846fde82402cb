"""Which request is due when, for any driver: a state machine over a Workload. Knows no engine and no clock.

    schedule = Schedule(workload)
    while schedule.unfinished():
        for due in schedule.take_due(now_ns): send due.prompt_token_ids        # now_ns from the start of the run
        schedule.ended(number, now_ns, answer_ids)  or  schedule.failed(number, now_ns)   # as answers end

Single-threaded. Everything but the moments that depend on answers was computed before the run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.workloads.workload import Workload, WorkloadRequest


@dataclass(frozen=True)
class Due:
    """A request to be sent now. `due_ns` is its scheduled arrival; latency counts from it. The prompt is the whole."""

    number: int
    request: WorkloadRequest
    due_ns: int
    prompt_token_ids: tuple[int, ...]


class Schedule:
    """The requests of one run that are still to come; times in ns from the start of the run."""

    def __init__(self, workload: Workload) -> None:
        self._requests = workload.requests
        self._closed = workload.concurrency is not None
        self._next_turn = {r.parent: number for number, r in enumerate(workload.requests) if r.parent is not None}
        self._due: list[tuple[int, int]] = []  # a heap of (due_ns, number)
        self._told: dict[
            int, tuple[int, ...]
        ] = {}  # whole conversations up to and with an answer that another turn follows
        self._prompts: dict[int, tuple[int, ...]] = {}  # of turns under way that another turn follows
        self._in_flight: set[int] = set()
        roots = [number for number, request in enumerate(workload.requests) if request.parent is None]
        self._waiting = deque(roots if self._closed else ())  # for a free client
        if workload.concurrency is None:
            self._due = [(self._requests[number].arrival_ns, number) for number in roots]
            heapq.heapify(self._due)
        else:
            for _ in range(min(workload.concurrency, len(roots))):
                heapq.heappush(self._due, (0, self._waiting.popleft()))

    def unfinished(self) -> bool:
        """Whether anything is still to be sent or to be answered."""
        return bool(self._due or self._in_flight or self._waiting)

    def next_due_ns(self) -> int | None:
        """When the next request is due; None while that depends on an answer, or when all were sent."""
        return self._due[0][0] if self._due else None

    def take_due(self, now_ns: int) -> list[Due]:
        """Every request that is due by now, in the order of their times; each is given out once."""
        taken = []
        while self._due and self._due[0][0] <= now_ns:
            due_ns, number = heapq.heappop(self._due)
            request = self._requests[number]
            before = () if request.parent is None else self._told.pop(request.parent)
            prompt = before + request.prompt_token_ids
            if number in self._next_turn:
                self._prompts[number] = prompt
            self._in_flight.add(number)
            taken.append(Due(number, request, due_ns, prompt))
        return taken

    def needs_answer(self, number: int) -> bool:
        """Whether a later turn begins with the answer of this request."""
        return number in self._next_turn

    def ended(self, number: int, at_ns: int, answer_ids: Sequence[int] = ()) -> None:
        """The answer of a request has ended. Its ids are needed where `needs_answer` says so."""
        self._in_flight.remove(number)
        following = self._next_turn.get(number)
        if following is None:
            self._free_client(at_ns)
        else:
            self._told[number] = (*self._prompts.pop(number), *answer_ids)
            self._push(following, at_ns)

    def failed(self, number: int, at_ns: int) -> list[int]:
        """A request failed. Returns the numbers of the later turns that can never be sent; they count as failed too."""
        self._in_flight.remove(number)
        self._prompts.pop(number, None)
        lost = []
        following = self._next_turn.get(number)
        while following is not None:
            lost.append(following)
            following = self._next_turn.get(following)
        self._free_client(at_ns)
        return lost

    def _free_client(self, at_ns: int) -> None:
        if self._closed and self._waiting:
            self._push(self._waiting.popleft(), at_ns)

    def _push(self, number: int, at_ns: int) -> None:
        heapq.heappush(self._due, (at_ns + self._requests[number].think_ns, number))


def whole_prompt(workload: Workload, number: int, answers: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """The prompt of a request as it was sent, given the answers' ids by number; for a later turn the conversation comes
    first. KeyError when an answer of that conversation is missing."""
    parts: list[Sequence[int]] = [workload.requests[number].prompt_token_ids]
    while (parent := workload.requests[number].parent) is not None:
        parts += [answers[parent], workload.requests[parent].prompt_token_ids]
        number = parent
    return tuple(token for part in reversed(parts) for token in part)
