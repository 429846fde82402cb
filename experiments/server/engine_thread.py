"""EngineThread: the one thread that makes, owns and steps the engines; commands go in, events come out.

An engine is not thread-safe, so nothing else touches one. Commands wait in a queue until the step under way is over;
what a step brought goes out as one list, handed over in one call, so that the receiver is woken once a step and not
once a token. With nothing to compute the thread sleeps in the queue: it never polls.

Several engines (a canary's two) take turns, a step each. They share the same cores anyway, and steps side by side
would only stretch each other; taking turns makes it known how long each one's steps took. `own_ns` is a clock that
stands still while the other engines compute: differences on it are what a request would have waited without them.

A step that raises fails every request of that engine. The engine goes on when it is whole afterwards, and is broken
after FAILURES such steps in a row or when it is not: then its requests are refused, and `broken` says why.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from core_engine.intake import refuse_full_queue
from core_engine.request import Request, State
from experiments.server.errors import Refusal
from experiments.server.events import Admitted, Dropped, Emission, Event, Failed, Job, Load, Rejected, Stepped
from ledger.errors import OUT_OF_MEMORY, is_out_of_memory

FAILURES = 3
STOP_TIMEOUT_S = 10.0
HISTORY_STEPS = 256  # then what the engine remembers of steps and ended requests is let go
STATIC_WAIT_NS = 1_000_000_000  # a static batch that is not full starts when its oldest request has waited this long
POLL_S = 0.001  # where an engine has work and did none of it, which continuous batching never does for long


class _Sample(NamedTuple):
    job: Job
    choice: int
    request: Request


class _Abort(NamedTuple):
    job: Job


class _ResetPrefixCache(NamedTuple):
    done: Callable[[int], None]


class _InvalidateAnswers(NamedTuple):
    tags: Sequence[str] | None  # None: all
    done: Callable[[int], None]


class _Stop(NamedTuple):
    pass


_Command = Job | _Abort | _ResetPrefixCache | _InvalidateAnswers | _Stop


class Arm:
    """One engine and the requests in it. Read from other threads: engine.config, load, broken."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.samples: dict[str, _Sample] = {}
        self.started: set[str] = set()  # samples that have their first token
        self.load = Load(0, 0, 0, engine.pool.num_blocks)
        self.broken: str | None = None
        self.failures = 0
        self.waiting_at_break: int | None = None  # when commands were left for a step to make room in the queue
        self.may_break = True
        self.waits_for_batch = engine.config.batching != "continuous"
        self.has_caches = "on" in (engine.config.exact_cache, engine.config.semantic_cache)
        engine.expect_more_arrivals(self.waits_for_batch)

    def look(self) -> None:
        """Publish where the engine stands."""
        scheduler, pool = self.engine.scheduler, self.engine.pool
        running = scheduler.running
        num_running = sum(r.state is State.RUNNING for r in running) if self.waits_for_batch else len(running)
        self.load = Load(num_running, len(scheduler.waiting), pool.num_used, pool.num_blocks)


class EngineThread:
    """make is called in the thread and returns the engines; deliver gets the events of a step, in the thread too.

    log is told what goes wrong: an event's name and its fields. Times are ns on the clock that the engines share.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Any]],
        deliver: Callable[[list[Event]], None],
        log: Callable[..., None],
    ) -> None:
        self._make, self._deliver, self._log = make, deliver, log
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._inbox: deque[_Command] = deque()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._ready = threading.Event()
        self._start_error: BaseException | None = None
        self._turns: tuple[tuple[int, ...], tuple[int, int] | None] = ((), None)  # ns by arm; (arm, since) of now
        self.arms: list[Arm] = []

    # -- any thread ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the engines; what goes wrong with it is raised here."""
        self._thread.start()
        self._ready.wait()
        if self._start_error is not None:
            raise self._start_error

    @property
    def ident(self) -> int | None:
        """Python's thread id."""
        return self._thread.ident

    def now_ns(self) -> int:
        """The clock of all times here."""
        now: int = self.arms[0].engine.clock.now_ns()
        return now

    def own_ns(self, arm: int, now_ns: int) -> int:
        """now_ns less the time in which other arms computed."""
        spent, turn = self._turns
        others = sum(ns for place, ns in enumerate(spent) if place != arm)
        if turn is not None and turn[0] != arm:
            others += max(0, now_ns - turn[1])
        return now_ns - others

    def submit(self, job: Job) -> None:
        """Queue a request; its events come through deliver."""
        self._commands.put(job)

    def abort(self, job: Job) -> None:
        """Drop a request between two steps; one that has ended is left alone."""
        self._commands.put(_Abort(job))

    def reset_prefix_cache(self, done: Callable[[int], None]) -> None:
        """Empty every arm's prefix cache; done, called in the thread, gets the number of blocks."""
        self._commands.put(_ResetPrefixCache(done))

    def invalidate_answers(self, tags: Sequence[str] | None, done: Callable[[int], None]) -> None:
        """Let go of every arm's stored answers with one of the tags, of all with None; done gets their number."""
        self._commands.put(_InvalidateAnswers(tags, done))

    def queued(self, arm: int) -> int:
        """Requests that wait in an arm or for the step under way to end."""
        return self.arms[arm].load.waiting + self._commands.qsize() + len(self._inbox)

    def stop(self) -> None:
        """Fail what is left and end the thread, which is left to itself when its step does not end."""
        self._commands.put(_Stop())
        self._thread.join(STOP_TIMEOUT_S)

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.arms = [Arm(engine) for engine in self._make()]
            self._turns = ((0,) * len(self.arms), None)
        except BaseException as error:
            self._start_error = error
            return
        finally:
            self._ready.set()
        try:
            while self._take_commands():
                self._step_each()
        except BaseException as error:  # a fault of ours: nobody may be left waiting
            self._log("engine_thread_failed", error=_line(error), traceback=traceback.format_exc())
            self._end(500, f"the engine's thread failed: {_line(error)}")
        else:
            self._end(503, "the server is stopping")

    def _end(self, status: int, reason: str) -> None:
        """Every request that is here is failed; after a fault (500) the thread lives on to fail those that come."""
        events: list[Event] = []
        for arm in self.arms:
            arm.broken = arm.broken or reason
            jobs = dict.fromkeys(sample.job for sample in arm.samples.values())
            events += [Failed(job, status, reason) for job in jobs]
            arm.samples.clear()
        self._deliver(events)
        stopped = status != 500
        while not stopped or self._inbox or not self._commands.empty():
            command = self._inbox.popleft() if self._inbox else self._commands.get()
            stopped = stopped or isinstance(command, _Stop)
            if isinstance(command, Job):
                self._deliver([Failed(command, status, reason)])
            elif isinstance(command, _ResetPrefixCache | _InvalidateAnswers):
                command.done(0)

    def _take_commands(self) -> bool:
        """Do what was asked for since the last step, waiting for it if there is nothing else; False to stop."""
        events: list[Event] = []
        self._fill_inbox()
        for arm in self.arms:
            left = arm.waiting_at_break
            arm.may_break = left is None or len(arm.engine.scheduler.waiting) < left
            arm.waiting_at_break = None
        while self._inbox:
            command = self._inbox[0]
            if isinstance(command, Job) and self._step_makes_room(command):
                break
            self._inbox.popleft()
            match command:
                case Job():
                    self._add(command, events)
                case _Abort(job):
                    self._abort(job, events)
                case _ResetPrefixCache(done):
                    done(sum(arm.engine.reset_prefix_cache() for arm in self.arms))
                case _InvalidateAnswers(tags, done):
                    caches = [arm.engine.caches for arm in self.arms if arm.has_caches]
                    done(sum(each.clear() if tags is None else each.invalidate(tags) for each in caches))
                case _Stop():
                    self._deliver(events)
                    return False
        for arm in self.arms:
            arm.look()
        if events:
            self._deliver(events)
        return True

    def _fill_inbox(self) -> None:
        """Everything that was submitted. With no work waits for the first, or until an engine may go on by itself."""
        try:
            if not self._inbox and (wait_s := self._idle_s()) != 0:
                self._inbox.append(self._commands.get(timeout=wait_s))
            while True:
                self._inbox.append(self._commands.get_nowait())
        except queue.Empty:
            return

    def _idle_s(self) -> float | None:
        """How long there is nothing to compute: 0 not at all, None until somebody comes."""
        waits = [self._idle_of(arm) for arm in self.arms if arm.broken is None and arm.engine.has_unfinished()]
        return min(waits, default=None)

    def _idle_of(self, arm: Arm) -> float:
        """Until an engine with requests has something to compute, s."""
        scheduler = arm.engine.scheduler
        if not arm.waits_for_batch or scheduler.running or not scheduler.waiting or arm.engine.num_stored:
            return 0.0
        now_ns = arm.engine.clock.now_ns()
        if scheduler.could_admit(now_ns):
            return 0.0
        return max(0.0, (self._starts_ns(arm) - now_ns) / 1e9)

    def _starts_ns(self, arm: Arm) -> int:
        """When a batch that does not get full starts."""
        config, oldest_ns = arm.engine.config, arm.engine.scheduler.waiting[0].log.arrival_ns
        wait_ns = int(config.max_wait_ms * 1e6) if config.batching == "dynamic" else STATIC_WAIT_NS
        return int(oldest_ns + wait_ns)

    def _step_makes_room(self, job: Job) -> bool:
        """Whether a step may admit waiting requests before this one is refused for a full queue.

        As long as the last step that was waited for did admit some.
        """
        arm = self.arms[job.arm]
        scheduler, most = arm.engine.scheduler, arm.engine.config.max_queue
        waiting = len(scheduler.waiting)
        if waiting + _wanted(job) <= most or not waiting or not arm.may_break or arm.broken is not None:
            return False
        if not scheduler.could_admit(arm.engine.clock.now_ns()):
            return False
        arm.waiting_at_break = waiting
        return True

    def _add(self, job: Job, events: list[Event]) -> None:
        arm = self.arms[job.arm]
        if arm.broken is not None:
            events.append(Rejected(job, Refusal(503, f"the engine is not healthy: {arm.broken}", code="unhealthy")))
            return
        engine = arm.engine
        try:
            # All prompts of a request are taken, or none.
            refuse_full_queue(len(engine.scheduler.waiting), _wanted(job), engine.config.max_queue)
            for place, prompt in enumerate(job.prompts):
                name = f"{job.id}-{place}"
                ask = {"cache": job.cache} if arm.has_caches else {}
                engine.add(prompt, job.params, request_id=name, arrival_ns=job.arrival_ns, **ask)
                job.groups.append(name)
                for session in engine.sessions.of(name):
                    request = session.request
                    choice = place * job.params.n + request.sample_index
                    arm.samples[request.id] = _Sample(job, choice, request)
                    job.names.append(request.id)
                    job.num_open += 1
        except Exception as error:
            self._forget(arm, job)
            events.append(Rejected(job, error))

    def _forget(self, arm: Arm, job: Job) -> None:
        """Take a job's requests out of the engine."""
        for group in job.groups:
            arm.engine.abort(group)
        for name in job.names:
            arm.samples.pop(name, None)
            arm.started.discard(name)
        job.num_open = 0

    def _abort(self, job: Job, events: list[Event]) -> None:
        if job.num_open:
            events.append(Dropped(job, job.num_open))
            self._forget(self.arms[job.arm], job)

    def _fail_all(self, arm: Arm, reason: str, events: list[Event]) -> None:
        jobs = dict.fromkeys(sample.job for sample in arm.samples.values())
        for job in jobs:
            self._forget(arm, job)
            events.append(Failed(job, 500, reason))

    def _step_each(self) -> None:
        """A step of every engine that has work."""
        stuck = False
        for place, arm in enumerate(self.arms):
            if arm.broken is None and arm.engine.has_unfinished():
                events: list[Event] = []
                self._step(place, arm, events)
                arm.look()
                if events:
                    self._deliver(events)
                elif not arm.waits_for_batch:
                    stuck = True
        if stuck:
            time.sleep(POLL_S)

    def _step(self, place: int, arm: Arm, events: list[Event]) -> None:
        engine = arm.engine
        start_ns = engine.clock.now_ns()
        if arm.waits_for_batch and engine.scheduler.waiting:
            engine.expect_more_arrivals(start_ns < self._starts_ns(arm))
        steps_before = engine.trace.num_steps
        self._turns = (self._turns[0], (place, start_ns))
        try:
            outputs = engine.step()
        except Exception as error:
            self._failed(arm, error, traceback.format_exc(), events)
            return
        finally:
            self._turns = (_plus(self._turns[0], place, engine.clock.now_ns() - start_ns), None)
        if engine.trace.num_steps == steps_before:
            at_ns = engine.clock.now_ns()  # stored answers, if any
            events.extend(self._emission(arm, output, at_ns, self.own_ns(place, at_ns)) for output in outputs)
            return
        arm.failures = 0
        step = engine.trace.steps[-1]
        at_ns = step["execute_end_ns"]
        own_ns = at_ns - sum(ns for other, ns in enumerate(self._turns[0]) if other != place)
        events.extend(self._emission(arm, output, at_ns, own_ns) for output in outputs)
        events.append(
            Stepped(
                place,
                step["commit_end_ns"] - step["plan_start_ns"],
                step["execute_end_ns"] - step["execute_start_ns"],
                step["prefill_tokens"] + step["decode_tokens"],
                len(step["preempted"]),
                step.get("drafts", ()),
            )
        )
        if engine.trace.num_steps >= HISTORY_STEPS:
            engine.clear_history()

    def _emission(self, arm: Arm, output: Any, at_ns: int, own_ns: int) -> Emission:
        name = output.request_id
        job, choice, request = arm.samples[name]
        admitted = None
        if name not in arm.started:
            arm.started.add(name)
            log = request.log
            queue_ns = (log.admit_ns or at_ns) - log.arrival_ns
            tier = None if log.cache is None else log.cache["tier"]
            looked_up = (log.prefix_asked_tokens, log.prefix_hit_tokens)
            admitted = Admitted(queue_ns, request.num_prompt_tokens, *looked_up, tier)
        if output.finished:
            del arm.samples[name]
            arm.started.discard(name)
            job.num_open -= 1
        return Emission(
            job, choice, output.token_ids, output.text, output.finish_reason, output.logprobs, at_ns, own_ns, admitted
        )

    def _failed(self, arm: Arm, error: Exception, trace: str, events: list[Event]) -> None:
        """A step raised: fail the engine's requests, and see whether it is whole without them."""
        reason = f"a step of the engine failed: {_line(error)}"
        arm.failures += 1
        num_requests = len(arm.samples)
        try:
            self._fail_all(arm, reason, events)
            arm.engine.clear_history()
            if arm.engine.has_unfinished() or arm.engine.pool.num_used:
                arm.broken = f"{reason}; KV blocks stayed behind"
            elif arm.failures >= FAILURES:
                arm.broken = f"{reason}; {arm.failures} steps in a row"
        except Exception as second:
            arm.broken = f"{reason}; giving up its requests failed too: {_line(second)}"
            jobs = dict.fromkeys(sample.job for sample in arm.samples.values())
            events += [Failed(job, 500, reason) for job in jobs]
            arm.samples.clear()
        self._log(
            "step_failed", error=_line(error), requests=num_requests, arm=self.arms.index(arm), broken=arm.broken,
            traceback=trace,
        )  # fmt: skip


def _plus(spent: tuple[int, ...], place: int, ns: int) -> tuple[int, ...]:
    return (*spent[:place], spent[place] + ns, *spent[place + 1 :])


def _line(error: BaseException) -> str:
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return " ".join(f"{type(error).__name__}: {error}".split())


def _wanted(job: Job) -> int:
    """Places in the queue that a job takes."""
    return job.params.n * len(job.prompts)
