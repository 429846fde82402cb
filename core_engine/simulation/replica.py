"""Replica: one simulated engine. Scheduler, admission, pool, prefix cache and speculation are the engine's own.

What an engine does beside them (text, trace, records of steps) is left out, so that a row of a step costs microseconds.
Where nothing can happen for a while but that every row gets a token, those steps are passed in one go (runs.py); the
outcome is the same, event for event.
"""

from __future__ import annotations

from collections.abc import Callable

from core_engine.admission import admission_policy
from core_engine.blocks import BlockPool
from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.executor.roofline_executor import Acceptance, RooflineExecutor, SimulatedMemory, SimulatedProposer
from core_engine.kv_layout import kv_layout
from core_engine.plan import StepPlan
from core_engine.request import Request, RequestLog, SamplingParams, State
from core_engine.scheduler import Scheduler
from core_engine.simulation.gaps import Gaps
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.received import ReceivingLayout
from core_engine.simulation.runs import Run, foreseen_run
from core_engine.speculation.speculation import Speculation
from ledger.kv_blocks import QUANTIZED
from ledger.step_time import StepTimes

OnEnd = Callable[[Ended], None]


class Replica:
    """skip: pass runs of unchanged decode steps in one go. keep_events: keep every emission of a request.

    duration: seconds of a plan instead of the model's, to replay recorded ones; then nothing is skipped. on_plan sees
    every plan. Jobs come by `submit` in order of arrival, after `advance` to that moment.
    """

    def __init__(
        self,
        config: EngineConfig,
        times: StepTimes,
        memory: SimulatedMemory,
        on_end: OnEnd,
        *,
        number: int = 0,
        max_position: int | None = None,
        acceptance: Acceptance | None = None,
        skip: bool = True,
        keep_events: bool = False,
        duration: Callable[[StepPlan], float] | None = None,
        on_plan: Callable[[StepPlan], None] | None = None,
        receives: bool = False,
    ) -> None:
        self.config, self.number, self.clock = config, number, VirtualClock()
        self.executor = RooflineExecutor(times, memory, self.clock, acceptance=acceptance, duration=duration)
        self.pool = BlockPool(memory.num_blocks, config.block_size)
        self.max_position = max_position or times.spec.max_position or 1 << 40
        self.most_tokens = min(self.max_position, memory.num_blocks * config.block_size + 1)
        layout = kv_layout(config, self.pool, self.max_position)
        self.received = ReceivingLayout(layout) if receives else None
        self.scheduler = Scheduler(
            self.received or layout,
            admission_policy(config),
            config.max_num_batched_tokens,
            chunked=config.chunked_prefill == "on",
            open_blocks=config.kv_dtype in QUANTIZED,
        )
        self.scheduler.more_arrivals = True
        proposer = None if acceptance is None else SimulatedProposer(self.clock, acceptance)
        self.speculation = Speculation(
            proposer, config.num_draft_tokens, self.clock, adaptive=config.draft_control == "adaptive"
        )
        self.gaps = Gaps()
        self.num_steps = self.num_passed = 0  # steps in all, and those of them that were passed in one go
        self.busy_ns = 0
        self.peak_used_blocks = 0
        self.keep_events = keep_events
        self.foresees = skip and duration is None and acceptance is None and on_plan is None
        self._on_end, self._on_plan = on_end, on_plan
        self._jobs: dict[str, Job] = {}
        self._ends_at: dict[str, int] = {}  # tokens of a request, its prompt's included, with which it ends
        self._run: Run | None = None
        self.is_blocked = False  # the first in the queue did not fit into the last step, and nothing was freed by it
        self._just_ended = 0  # by the last step, which may end after the moment that somebody asks about

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(self, job: Job, received_tokens: int = 0) -> None:
        """Queue a job at its arrival, which `advance` has reached; one that can never fit ends as refused.

        received_tokens: of the prompt whose keys and values come with it.
        """
        self._settle(job.arrival_ns)
        if not self.scheduler.has_unfinished():
            self.clock.reach_ns(job.arrival_ns)
        tokens = job.tokens()
        if self._cannot_fit(len(tokens)) or len(self.scheduler.waiting) >= self.config.max_queue:
            self._on_end(Ended(job, self.number, "refused"))
            return
        params = SamplingParams(max_tokens=job.max_tokens, answer_tokens=job.output_tokens, ignore_eos=True)
        seed = (self.config.seed * 1_000_003 + job.index) % 2**63
        name = f"r{job.index:02d}"
        log = RequestLog(job.arrival_ns, self.clock.now_ns())
        request = Request(name, job.index, tokens, len(tokens), params, seed, log, group=name)
        self._jobs[name] = job
        answer = request.num_prompt_tokens + (params.answer_tokens or params.max_tokens)
        self._ends_at[name] = min(answer, request.max_total_tokens, self.most_tokens)
        if received_tokens:
            assert self.received is not None
            self.received.expect(name, received_tokens)
        self.scheduler.add(request)

    def _cannot_fit(self, length: int) -> bool:
        unchunked = self.config.chunked_prefill == "off" and length > self.config.max_num_batched_tokens
        return not length or length >= self.max_position or length >= self.most_tokens or unchunked

    def load(self, moment_ns: int) -> int:
        """Requests here that have not ended by a moment that `advance` has reached."""
        return len(self._jobs) + (self._just_ended if self.clock.now_ns() > moment_ns else 0)

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, until_ns: int | None) -> None:
        """Take all steps that begin before a moment; None: until everything has ended, nobody else being to come.

        A run of foreseen steps that goes on beyond the moment is left standing until something arrives here.
        """
        if until_ns is None:
            self.scheduler.more_arrivals = False
        while True:
            if self._run is not None:
                if until_ns is not None and not self._run.is_over(until_ns):
                    return
                self._apply(self._run.steps)
            if not self.scheduler.has_unfinished():
                return
            if until_ns is not None and self.clock.now_ns() >= until_ns:
                return
            if self.foresees:
                self._run = foreseen_run(self)
                if self._run is not None:
                    continue
            if not self._step() and not self._wait(until_ns):
                return

    def _wait(self, until_ns: int | None) -> bool:
        """Admission waits for more requests: pass time until it acts by itself. False when that is not before."""
        oldest_ns = self.scheduler.waiting[0].log.arrival_ns
        acts_ns = oldest_ns + int(self.config.max_wait_ms * 1e6) if self.config.batching == "dynamic" else None
        if acts_ns is None or (until_ns is not None and acts_ns >= until_ns):
            if until_ns is not None:
                self.clock.reach_ns(until_ns)
            return False
        self.clock.reach_ns(max(acts_ns, self.clock.now_ns() + 1))
        return True

    def _settle(self, moment_ns: int) -> None:
        """Take those steps of a standing run that have begun by a moment, and forget the rest."""
        if self._run is not None:
            self._apply(self._run.begun(moment_ns))

    def _apply(self, steps: int) -> None:
        run, self._run = self._run, None
        assert run is not None
        if steps:
            began_ns = self.clock.now_ns()
            run.apply(self, steps)
            self.num_steps += steps
            self.num_passed += steps
            self.busy_ns += self.clock.now_ns() - began_ns
            self.peak_used_blocks = max(self.peak_used_blocks, self.pool.num_used)
            self._just_ended = 0

    def _step(self) -> bool:
        """One step; False when there is nothing to compute yet."""
        began_ns = self.clock.now_ns()
        scheduler, speculation = self.scheduler, self.speculation
        draft_ns = 0
        if speculation.proposer is not None:
            draft_ns = speculation.draft(scheduler.running, self._draft_room)
        plan = scheduler.plan(began_ns)
        if not plan.rows:
            return False
        changed = plan.admitted or plan.preempted or plan.num_tokens > len(plan.rows)
        blocked = not changed and scheduler.could_admit(began_ns)
        if self._on_plan is not None:
            self._on_plan(plan)
        result = self.executor.execute(plan)
        now_ns = self.clock.now_ns()
        self.peak_used_blocks = max(self.peak_used_blocks, self.pool.num_used)
        ended: list[tuple[Request, str]] = []

        def ends(request: Request, token: int) -> bool:
            if len(request.tokens) < self._ends_at[request.id]:
                return False
            reason = self.reason_to_end(request)
            assert reason is not None
            ended.append((request, reason))
            return True

        emitted = scheduler.commit(plan, result, ends)
        for request, count in emitted:
            self._emit(request, now_ns, count)
        if speculation.proposer is not None:
            got = {request.id: count for request, count in emitted}
            speculation.count(plan, result.accepted, got, draft_ns, now_ns - began_ns)
        for request, reason in ended:
            scheduler.finish(request, reason, now_ns)
            self._ended(request, reason)
        self._just_ended = len(ended)
        self.is_blocked = blocked and not ended
        scheduler.layout.drain()
        self.num_steps += 1
        self.busy_ns += now_ns - began_ns
        return True

    def _draft_room(self, request: Request) -> int:
        return self.scheduler.draft_room(request, self.most_tokens)

    def reason_to_end(self, request: Request) -> str | None:
        """Why an answer ends with its newest token, as core_engine/sessions.py says; None: it goes on."""
        if request.num_output_tokens == request.params.answer_tokens:
            return "stop"
        if len(request.tokens) >= min(request.max_total_tokens, self.most_tokens):
            return "length"
        return None

    def _emit(self, request: Request, now_ns: int, count: int) -> None:
        emissions = request.log.emissions
        if emissions:
            self.gaps.add(now_ns - emissions[-1][0])
        if self.keep_events or len(emissions) < 2:
            emissions.append((now_ns, count))
        else:
            emissions[1] = (now_ns, count)

    def _ended(self, request: Request, reason: str) -> None:
        log = request.log
        del self._ends_at[request.id]
        waits = [(out, (back or 0) - out) for out, back in log.preemptions if out is not None]
        first_ns = log.emissions[0][0]
        self._on_end(
            Ended(
                job=self._jobs.pop(request.id),
                replica=self.number,
                reason=reason,
                admit_ns=log.admit_ns,
                first_ns=first_ns,
                last_ns=log.emissions[-1][0],
                first_tokens=log.emissions[0][1],
                output_tokens=request.num_output_tokens,
                preemptions=len(log.preemptions),
                queue_ns=(log.admit_ns or 0) - log.arrival_ns + sum(wait for _, wait in waits),
                late_queue_ns=sum(wait for out, wait in waits if out >= first_ns),
                prefix_hit_tokens=log.prefix_hit_tokens,
                emissions=tuple(log.emissions) if self.keep_events else (),
            )
        )
        self.speculation.release(request.id, ended=True)

    @property
    def running(self) -> list[Request]:
        """Requests that compute."""
        return [request for request in self.scheduler.running if request.state is State.RUNNING]
