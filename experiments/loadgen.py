"""Load generation: drives one engine by a workload's schedule and returns the run record.

Owns the schedule's clock arithmetic and the timers of its own work. Knows no metrics and no store.
Arrivals come from the schedule; a request is handed over between two steps, never later than the first moment the
engine could look at it. Latencies are counted from the schedule, whatever the lateness. In an open loop the schedule is
computed before the run. In a closed loop, and for the later turns of a conversation, a request's scheduled arrival is
the moment at which its client was free, the answer before it in hand, plus the pause drawn before the run.

What the load generator does between two steps delays every running request, so it is timed and kept in the record:
record["sender_ns"] = {"send" | "report" | "cancel" | "sleep": [[start, end], ...]}, ns on the record's clock.

What NVML says of a CUDA device meanwhile is in record["telemetry"], whose shape core_engine/telemetry.py states.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from core_engine.answer_cache import CacheAsk
from core_engine.outputs import Output
from core_engine.request import SamplingParams
from core_engine.telemetry import Telemetry, sampled
from experiments.workloads import Due, Schedule, Workload, WorkloadRequest
from ledger.errors import InputError

# Longest sleep while admission waits for a fuller batch: `dynamic` acts on time alone, so it is asked again this often.
POLL_S = 0.001
# Shorter pieces of our own work are not kept: three a step would be most of a record and add up to nothing.
SHORTEST_NS = 1_000
NS_PER_S = 1_000_000_000
SENDER_KINDS = ("send", "report", "cancel", "sleep")
ANSWERED = ("stop", "length")  # how an answer ends that another turn can follow


class Cancelled(Exception):
    """The user asked to stop. `result` is what could be made of the runs that had finished; None when nothing."""

    def __init__(self, result: dict[str, Any] | None = None) -> None:
        super().__init__("cancelled")
        self.result = result


@dataclass(frozen=True)
class Progress:
    """How far a run is: output tokens emitted and asked for, and ns since it began."""

    output_tokens: int
    expected_output_tokens: int
    elapsed_ns: int


def run(
    engine: Any,
    workload: Workload,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Send `workload` to a fresh `engine` and return the run record, times in ns from the start of the run.

    Garbage collection is off meanwhile: collecting among all of torch's objects takes tens of ms in the middle of a
    step. A request the engine refuses is a failed request of the record; InputError when it refuses every one of them.
    Cancelled when `should_cancel` says so between two steps.
    """
    with no_garbage_collection(), sampled(engine.loaded.weights.device, engine.clock) as telemetry:
        drive = _Drive(engine, workload)
        while drive.unfinished():
            if should_cancel is not None:
                with drive.timed("cancel"):
                    cancelled = should_cancel()
                if cancelled:
                    raise Cancelled
            drive.turn()
            if on_progress is not None:
                with drive.timed("report"):
                    on_progress(drive.progress())
    return drive.record(telemetry)


def sampling_params(request: WorkloadRequest, *, ignore_eos: bool) -> SamplingParams:
    """What an engine is told of a workload's request: the stated limit, and the length at which its answer ends."""
    return SamplingParams(
        max_tokens=request.max_tokens,
        answer_tokens=request.output_tokens if ignore_eos else None,
        ignore_eos=ignore_eos,
    )


def cache_ask(request: WorkloadRequest) -> dict[str, Any]:
    """What an engine is told of the answer caches: nothing, unless the workload's request allows the semantic one."""
    return {} if request.question is None else {"cache": CacheAsk(semantic=True, question=request.question)}


def request_id(number: int) -> str:
    """The id of a workload's request; numbers count from 0 in the order of arrival."""
    return f"r{number:02d}"


def number_of(request_id: str) -> int:
    """The number of a workload's request, from its id."""
    return int(request_id[1:])


class _Drive:
    """One run in progress: what is still to be sent, and what was refused."""

    def __init__(self, engine: Any, workload: Workload) -> None:
        self._engine = engine
        self._workload = workload
        self._ignore_eos = workload.ignore_eos
        self._schedule = Schedule(workload)
        self._answers: dict[str, list[int]] = {}  # of requests under way that another turn follows, so far
        self._expected = sum(request.output_tokens for request in workload.requests)
        self._output_tokens = 0
        self._refused: list[tuple[dict[str, Any], InputError]] = []
        self._sender_ns: dict[str, list[list[int]]] = {kind: [] for kind in SENDER_KINDS}
        self._start_ns = engine.clock.now_ns()
        self._expect_more()

    def unfinished(self) -> bool:
        return self._schedule.unfinished() or self._engine.has_unfinished()

    def progress(self) -> Progress:
        return Progress(self._output_tokens, self._expected, self._engine.clock.now_ns() - self._start_ns)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Keep the time that a piece of our own work takes; kind is one of SENDER_KINDS."""
        start_ns = self._engine.clock.now_ns()
        try:
            yield
        finally:
            end_ns = self._engine.clock.now_ns()
            if end_ns - start_ns >= SHORTEST_NS:
                self._sender_ns[kind].append([start_ns, end_ns])

    def turn(self) -> None:
        """Hand over what is due, then one step, or a sleep when nothing can be computed yet."""
        self._send_due()
        steps_before = self._engine.trace.num_steps
        if self._engine.has_unfinished():
            outputs = self._engine.step()
            self._take(outputs)
            if outputs or self._engine.trace.num_steps > steps_before:
                return
            self._sleep(at_most_s=POLL_S)
        else:
            self._sleep(at_most_s=1.0)

    def _now_ns(self) -> int:
        return int(self._engine.clock.now_ns()) - self._start_ns

    def _expect_more(self) -> None:
        """Only what comes whatever the engine does: batching must not wait for requests that wait for its answers."""
        self._engine.expect_more_arrivals(self._schedule.next_due_ns() is not None)

    def _send_due(self) -> None:
        while (due_ns := self._schedule.next_due_ns()) is not None and due_ns <= self._now_ns():
            with self.timed("send"):
                for due in self._schedule.take_due(due_ns):
                    self._send(due)
            self._expect_more()

    def _send(self, due: Due) -> None:
        params = sampling_params(due.request, ignore_eos=self._ignore_eos)
        name = request_id(due.number)
        if self._schedule.needs_answer(due.number):
            self._answers[name] = []
        try:
            self._engine.add(
                list(due.prompt_token_ids),
                params,
                request_id=name,
                arrival_ns=self._start_ns + due.due_ns,
                **cache_ask(due.request),
            )
        except InputError as error:
            self._refused.append((self._refusal(due.number, due.due_ns, str(error)), error))
            self._failed(due.number)

    def _failed(self, number: int) -> None:
        """The turns that would have followed failed too, each of them a request that nobody got."""
        now_ns = self._now_ns()
        self._answers.pop(request_id(number), None)
        for lost in self._schedule.failed(number, now_ns):
            error = InputError("turn", request_id(lost), f"a conversation whose turn {request_id(number)} was answered")
            self._refused.append((self._refusal(lost, now_ns, str(error)), error))

    def _take(self, outputs: list[Output]) -> None:
        """Count what a step brought, and let clients and conversations go on where it ended an answer."""
        ended = False
        for output in outputs:
            self._output_tokens += len(output.token_ids)
            if (answer := self._answers.get(output.request_id)) is not None:
                answer += output.token_ids
            if output.finished:
                ended = True
                self._end(number_of(output.request_id), output)
        if ended:
            self._expect_more()

    def _end(self, number: int, output: Output) -> None:
        if output.finish_reason in ANSWERED:
            self._schedule.ended(number, self._now_ns(), self._answers.pop(output.request_id, ()))
        else:
            self._failed(number)

    def _refusal(self, number: int, due_ns: int, error: str) -> dict[str, Any]:
        request = self._workload.requests[number]
        return {
            "id": request_id(number), "prompt_tokens": request.prompt_tokens, "max_tokens": request.max_tokens,
            "arrival_ns": self._start_ns + due_ns, "send_ns": self._engine.clock.now_ns(), "admit_ns": None,
            "steps": [], "emissions": [], "preemptions": [], "finish_ns": None, "release_ns": None,
            "finish_reason": "error", "error": error, "output_token_ids": [],
        }  # fmt: skip

    def _sleep(self, *, at_most_s: float) -> None:
        wait_s = at_most_s
        if (due_ns := self._schedule.next_due_ns()) is not None:
            wait_s = min(wait_s, (due_ns - self._now_ns()) / NS_PER_S)
        if wait_s > 0:
            with self.timed("sleep"):
                self._engine.clock.sleep(wait_s)

    def record(self, telemetry: Telemetry) -> dict[str, Any]:
        record = self._engine.record()
        if self._refused and len(self._refused) == len(self._workload.requests):
            raise self._refused[0][1]
        every = [*record["requests"], *(refusal for refusal, _ in self._refused)]
        record["requests"] = sorted(every, key=lambda request: number_of(request["id"]))
        for entry in record["requests"]:
            key = self._workload.requests[number_of(entry["id"])].answer_key
            if key is not None:
                entry["answer_key"] = key
        record["sender_ns"] = self._sender_ns
        record["telemetry"] = telemetry.record()
        shift_times(record, -self._start_ns)
        record["workload"] = self._workload.describe()
        return record


@contextmanager
def no_garbage_collection(*, first: bool = True) -> Iterator[None]:
    """Collect now (not with `first` false: 0.1 s with torch loaded), and not again until the end."""
    was_enabled = gc.isenabled()
    if first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def shift_times(record: dict[str, Any], by_ns: int) -> None:
    """Move every time of a run record by `by_ns`, in place; missing times stay missing."""
    losses = record.get("disaggregation", {}).get("losses", ())
    for item in (*record["steps"], *record["requests"], *record.get("transfers", ()), *losses):
        for key, value in item.items():
            if key.endswith("_ns") and value is not None:
                item[key] = value + by_ns
    if "host_ns" in record:
        record["host_ns"] = _shifted(record["host_ns"], by_ns)
    if "sender_ns" in record:
        record["sender_ns"] = {kind: _shifted(pairs, by_ns) for kind, pairs in record["sender_ns"].items()}
    if "telemetry" in record:
        record["telemetry"]["t_ns"] = [moment + by_ns for moment in record["telemetry"]["t_ns"]]
    for request in record["requests"]:
        request["emissions"] = [[time_ns + by_ns, tokens] for time_ns, tokens in request["emissions"]]
        request["preemptions"] = [
            [None if moment is None else moment + by_ns for moment in pair] for pair in request["preemptions"]
        ]


def _shifted(intervals: list[list[int]], by_ns: int) -> list[list[int]]:
    return [[start + by_ns, end + by_ns] for start, end in intervals]
