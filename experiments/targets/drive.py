"""Sends a workload to a server by its schedule, one task a request, and keeps what came back. Knows no metrics.

The schedule is absolute: a request leaves at its time whatever became of the others, and its latency counts from that
time. How late it really left is in the record, and so is how late this process itself was served by its machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from experiments.loadgen import Cancelled, Progress
from experiments.targets.client import Attempt, Client
from experiments.workloads import Due, Schedule, Workload

# How often a cancel is looked for, progress told, and the loop's own lateness taken.
POLL_S = 0.1


class Clock(Protocol):
    """Time that a run is stamped with, and a sleep on it."""

    def now_ns(self) -> int:
        """Nanoseconds, monotonic."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        ...


class RealClock:
    """The machine's."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class Sent:
    """A request, when it was due (ns on the run's clock) and what came of it; `attempt` None when it wasn't sent."""

    number: int
    due_ns: int
    prompt_tokens: int
    max_tokens: int
    attempt: Attempt | None = None
    error: str | None = None


@dataclass
class Driven:
    """A run as it went. lag_ns: how much later than asked this process woke up."""

    start_ns: int
    sent: list[Sent] = field(default_factory=list)
    lag_ns: list[int] = field(default_factory=list)


Send = Callable[[Client, Due], Awaitable[Attempt]]
AnswerIds = Callable[[Attempt], list[int]]


class Drive:
    """One run in progress. `send` words and sends a request; `answer_ids` are what a later turn begins with."""

    def __init__(self, workload: Workload, client: Client, clock: Clock, send: Send, answer_ids: AnswerIds) -> None:
        self._workload = workload
        self._client = client
        self._clock = clock
        self._send = send
        self._answer_ids = answer_ids
        self._schedule = Schedule(workload)
        self._expected = sum(request.output_tokens for request in workload.requests)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._fault: BaseException | None = None
        self._read_before = client.chunks_read
        self.driven = Driven(clock.now_ns())

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended."""
        return len(self._tasks)

    def chunks(self) -> int:
        """Events read so far, about the tokens so far."""
        return self._client.chunks_read - self._read_before

    async def run(
        self, on_progress: Callable[[Progress], None] | None, should_cancel: Callable[[], bool] | None
    ) -> Driven:
        """Send everything and wait for all answers. Cancelled when `should_cancel` says so; nothing is left behind."""
        watch = asyncio.create_task(self._watch(on_progress, should_cancel))
        try:
            while self._schedule.unfinished():
                if self._fault is not None:
                    raise self._fault
                if watch.done():
                    break
                for due in self._schedule.take_due(self._now_ns()):
                    task = asyncio.create_task(self._one(due))
                    self._tasks.add(task)
                    task.add_done_callback(self._is_over)
                await self._until_something()
            if watch.done():
                watch.result()  # raises what the watch raised
        finally:
            left = [watch, *self._tasks]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if on_progress is not None:
            on_progress(self._progress())
        self.driven.sent.sort(key=lambda sent: sent.number)
        return self.driven

    def _is_over(self, task: asyncio.Task[None]) -> None:
        """A fault of ours in one request ends the run: its schedule would wait for that request for ever."""
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = self._fault or fault
            self._ended.set()

    def _now_ns(self) -> int:
        return self._clock.now_ns() - self.driven.start_ns

    async def _until_something(self) -> None:
        """Wait until the next request is due, or an answer ended, or it is time to look for a cancel."""
        due_ns = self._schedule.next_due_ns()
        wait_s = POLL_S if due_ns is None else min(POLL_S, max(0.0, (due_ns - self._now_ns()) / 1e9))
        if not wait_s:
            return
        self._ended.clear()
        waits = [asyncio.create_task(self._ended.wait()), asyncio.create_task(self._clock.sleep(wait_s))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

    async def _one(self, due: Due) -> None:
        attempt = await self._send(self._client, due)
        now_ns = self._now_ns()
        lengths = len(due.prompt_token_ids), due.request.output_tokens
        self.driven.sent.append(Sent(due.number, due.due_ns, *lengths, attempt))
        if attempt.error is None:
            needed = self._schedule.needs_answer(due.number)
            self._schedule.ended(due.number, now_ns, self._answer_ids(attempt) if needed else ())
        else:
            for number in self._schedule.failed(due.number, now_ns):
                self._lose(number, now_ns)
        self._ended.set()

    def _lose(self, number: int, now_ns: int) -> None:
        request = self._workload.requests[number]
        lengths = request.prompt_tokens, request.output_tokens
        self.driven.sent.append(Sent(number, now_ns, *lengths, error="the turn before it failed"))

    async def _watch(
        self, on_progress: Callable[[Progress], None] | None, should_cancel: Callable[[], bool] | None
    ) -> None:
        while True:
            asked_ns = time.perf_counter_ns()
            await asyncio.sleep(POLL_S)
            self.driven.lag_ns.append(max(0, time.perf_counter_ns() - asked_ns - round(POLL_S * 1e9)))
            if should_cancel is not None and should_cancel():
                self._ended.set()
                raise Cancelled
            if on_progress is not None:
                on_progress(self._progress())

    def _progress(self) -> Progress:
        return Progress(self.chunks(), self._expected, self._now_ns())


def answer_ids_of(tokenizer: Any) -> AnswerIds:
    """Ids of an answer's text, without a mark of the beginning."""

    def ids(attempt: Attempt) -> list[int]:
        begins = tokenizer.encode("")
        found: list[int] = tokenizer.encode(attempt.answer.text)
        return found[len(begins) :]

    return ids
