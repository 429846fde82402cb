"""Engine: glue between requests, scheduler, executor and text. Plain Python, usable without the rest of the project.

engine = Engine(config, load_model(config))
engine.generate(["The capital of France is"], SamplingParams(max_tokens=8))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import Any

from core_engine.accounts import predicted_ledger
from core_engine.admission import admission_policy
from core_engine.blocks import BlockPool
from core_engine.clock import Clock, MonotonicClock
from core_engine.config import EngineConfig
from core_engine.environment import describe
from core_engine.executor.base import Executor
from core_engine.executor.torch_executor import make_torch_executor
from core_engine.intake import refuse_full_queue, refuse_prompt, whole_ids
from core_engine.kv.format import KVFormat
from core_engine.kv_layout import kv_layout
from core_engine.memory_readings import restart_peak
from core_engine.model.loader import LoadedModel
from core_engine.outputs import Completion, Output
from core_engine.plan import StepPlan, StepResult, Watch
from core_engine.prefix import namespace
from core_engine.request import Request, SamplingParams, State
from core_engine.scheduler import Scheduler
from core_engine.sessions import Session, Sessions
from core_engine.speculation.make import make_proposer
from core_engine.speculation.proposer import Proposer
from core_engine.speculation.speculation import Speculation
from core_engine.threads import bind_threads
from core_engine.trace import StepTimer, Trace
from ledger.errors import InputError
from ledger.memory import MemoryLedger

__all__ = ["Completion", "Engine", "Output"]


class Engine:
    """One model, one KV pool, one scheduler. Not thread-safe: add, abort and step from one thread.

    Ended requests and steps are kept for `record` up to a bound, and let go by `clear_history`.
    """

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        *,
        clock: Clock | None = None,
        executor: Executor | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        """proposer: instead of the one that the configuration names."""
        self.config = config
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        self.clock = clock or MonotonicClock()
        restart_peak()
        self.executor = executor or make_torch_executor(config, loaded)
        form = KVFormat.from_config(config, loaded.weights.dtype)
        self.pool = BlockPool(self.executor.num_blocks, config.block_size)
        self._capacity = self.pool.num_blocks * self.pool.block_size
        self._max_position = loaded.decoder.spec.max_position
        self._most_tokens = min(self._max_position, self._capacity + 1)  # of a sequence, prompt included
        self.scheduler = Scheduler(
            kv_layout(config, self.pool, self._max_position),
            admission_policy(config),
            config.max_num_batched_tokens,
            chunked=config.chunked_prefill == "on",
            open_blocks=form.is_quantized,
        )
        self.trace = Trace()
        proposer = make_proposer(config, loaded) if proposer is None else proposer
        self.speculation = Speculation(
            proposer, config.num_draft_tokens, self.clock, adaptive=config.draft_control == "adaptive"
        )
        if self.speculation.needs_hidden:
            self.executor.needs_hidden = True
        self.sessions = Sessions(self.tokenizer, seed=config.seed, namespace=_namespace(loaded, form))
        not_bound = bind_threads(config.pin_threads, loaded.decoder)
        here = describe(loaded.weights.device, loaded.weights.dtype)
        quantizing = {} if loaded.quantizing is None else {"quantizing": asdict(loaded.quantizing)}
        self.environment = {**here, **asdict(loaded.kernels), **quantizing, "pinned": not_bound or "yes"}
        self.beside_bytes = 0  # weights of other models in this process, told by who loaded them

    @cached_property
    def predicted(self) -> MemoryLedger:
        """What the ledger says of these settings."""
        return predicted_ledger(self)

    # -- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
    ) -> str:
        """Queue a prompt (text or token ids) and return its id; with params.n > 1 the id stands for all n samples.

        arrival_ns is the time the schedule says, now by default. InputError when it can never fit or the queue is full.
        """
        return self._enqueue(prompt, params or SamplingParams(), request_id, arrival_ns, score_start=None)

    def _enqueue(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int | None,
        score_start: int | None,
    ) -> str:
        start_ns = self.clock.now_ns()
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else whole_ids(prompt)
        refuse_prompt(
            ids,
            params,
            self.config,
            vocab_size=self.loaded.spec.vocab_size,
            max_position=self._max_position,
            capacity=self._capacity,
            scoring=score_start is not None,
        )
        params.check_vocabulary(self.loaded.spec.vocab_size)
        refuse_full_queue(len(self.scheduler.waiting), params.n, self.config.max_queue)
        arrival_ns = start_ns if arrival_ns is None else arrival_ns
        group, requests = self.sessions.open(ids, params, request_id, arrival_ns, start_ns, score_start)
        for request in requests:
            self.scheduler.add(request)
        self.trace.host_ns.append((start_ns, self.clock.now_ns()))
        return group

    def abort(self, request_id: str) -> None:
        """Drop a request, all samples of it, at any time; one that has ended is left alone."""
        now_ns = self.clock.now_ns()
        for session in self.sessions.of(request_id):
            self._abort(session, now_ns)

    def _abort(self, session: Session, now_ns: int) -> None:
        request = session.request
        if request.finish_reason is None:
            self.scheduler.abort(request, now_ns)
            self._ended(request)
            if session.unread is not None:
                text = session.text.take(final=True)
                session.unread.append(Output(request.id, [], text, True, "abort", request.sample_index))

    def expect_more_arrivals(self, more: bool) -> None:
        """Tell static and dynamic batching whether anyone else is scheduled to come."""
        self.scheduler.more_arrivals = more

    def has_unfinished(self) -> bool:
        """Whether a step would have work, now or after a wait."""
        return self.scheduler.has_unfinished()

    # -- stepping ------------------------------------------------------------------------------------------------

    def step(self) -> list[Output]:
        """One step: plan, execute, commit. An empty list also when admission waits for more requests."""
        timer = StepTimer(self.clock.now_ns(), self.scheduler.more_arrivals)
        timer.draft_ns = self.speculation.draft(
            self.scheduler.running, lambda request: self.scheduler.draft_room(request, self._most_tokens)
        )
        plan = self.scheduler.plan(timer.plan_start_ns)
        for request_id in plan.preempted:
            self.speculation.release(request_id, ended=False)
        if not plan.rows:
            return []
        try:
            timer.execute_start_ns = self.clock.now_ns()
            result = self.executor.execute(plan)
            timer.execute_end_ns = self.clock.now_ns()
        except BaseException:
            self.scheduler.rollback(plan)
            raise
        timer.observe_ns = self.speculation.observe(plan, result)
        self.trace.executed(timer, plan, result, self.scheduler)
        outputs = self._commit(plan, result, timer.execute_end_ns)
        now_ns = self.clock.now_ns()
        timer.outcomes = self.speculation.committed(
            plan,
            result,
            outputs,
            timer.draft_ns + timer.observe_ns,
            now_ns - timer.plan_start_ns,
        )
        self.trace.end(timer, plan, self.scheduler, now_ns)
        return outputs

    def _commit(self, plan: StepPlan, result: StepResult, now_ns: int) -> list[Output]:
        outputs = []
        reasons: dict[str, str] = {}

        def ends(request: Request, token: int) -> bool:
            reason = self.sessions.live[request.id].push(token, self._most_tokens)
            if reason:
                reasons[request.id] = reason
            return reason is not None

        for request, count in self.scheduler.commit(plan, result, ends):
            request.log.emissions.append((now_ns, count))
            session, reason = self.sessions.live[request.id], reasons.get(request.id)
            output = session.output(count, reason)
            outputs.append(output)
            self.trace.output_tokens += count
            if session.unread is not None:
                session.unread.append(output)
            if reason:
                self._end(request, reason, now_ns)
        for row in [row for row in plan.rows if row.targets]:
            scored = self.sessions.live.get(row.request_id)
            if scored is not None and scored.request.num_pending == 0:
                self._end(scored.request, "score", now_ns)
        return outputs

    def _end(self, request: Request, reason: str, now_ns: int) -> None:
        self.scheduler.finish(request, reason, now_ns)
        self._ended(request)

    def _ended(self, request: Request) -> None:
        self.sessions.end(request)
        self.speculation.release(request.id, ended=True)

    # -- whole answers -------------------------------------------------------------------------------------------

    @contextmanager
    def _own(self) -> Iterator[list[Session]]:
        """A list for the sessions a caller waits for; those that are not finished when it leaves are aborted."""
        own: list[Session] = []
        try:
            yield own
        finally:
            for session in own:
                self._abort(session, self.clock.now_ns())

    def _advance(self) -> None:
        """A step for a caller that waits, so that nobody else comes before it."""
        before, self.scheduler.more_arrivals = self.scheduler.more_arrivals, False
        try:
            self.step()
        finally:
            self.scheduler.more_arrivals = before

    def generate(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[Completion]:
        """Answer all prompts and return when the last is done, in the order of the prompts; samples stand together.

        Computes while the queue is full. When it raises, none of its prompts stays behind.
        """
        params = params or SamplingParams()
        with self._own() as own:
            for prompt in prompts:
                while self.scheduler.waiting and len(self.scheduler.waiting) + params.n > self.config.max_queue:
                    self._advance()
                own += self.sessions.of(self.add(prompt, params))
            while any(session.request.finish_reason is None for session in own):
                self._advance()
            return [session.completion() for session in own]

    def stream(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Iterator[Output]:
        """Yield the outputs of one prompt as they come; closing the iterator aborts the request."""
        unread: deque[Output] = deque()
        with self._own() as own:
            own += self.sessions.of(self.add(prompt, params))
            for session in own:
                session.unread = unread
            while unread or any(session.request.finish_reason is None for session in own):
                if unread:
                    yield unread.popleft()
                else:
                    self._advance()

    def completions(self, request_id: str) -> list[Completion]:
        """The answers of a finished request, one a sample."""
        return [session.completion() for session in self.sessions.of(request_id)]

    def completion(self, request_id: str) -> Completion:
        """The answer of a finished request, the first sample's."""
        return self.completions(request_id)[0]

    def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Log-probability (natural) of each of token_ids[start:] given all before, through this engine's KV path."""
        with self._own() as own:
            request_id = self.add_score(token_ids, start)
            own += self.sessions.of(request_id)
            while (scores := self.take_scores(request_id)) is None:
                self._advance()
        return scores

    def add_score(self, token_ids: Sequence[int], start: int, watch: Watch | None = None) -> str:
        """Queue token_ids[start:] to be scored beside whatever else runs; `take_scores` gives the log-probabilities.

        watch, if any, sees the whole distribution of every scored token as it is computed (see core_engine.plan).
        """
        ids = whole_ids(token_ids)
        if len(ids) < 2 or start not in range(1, len(ids)):
            raise InputError("start", start, f"a whole number from 1 to {len(ids) - 1}, with at least two tokens")
        request_id = self._enqueue(ids, SamplingParams(max_tokens=1), None, None, score_start=int(start))
        self.sessions.of(request_id)[0].request.watch = watch
        return request_id

    def take_scores(self, request_id: str) -> list[float] | None:
        """The log-probabilities of a scoring request, which is forgotten with that; None while it is not finished."""
        request = self.sessions.of(request_id)[0].request
        if request.finish_reason is None:
            return None
        if request.state is State.FINISHED:
            self.sessions.forget([request])
        return list(request.scores)

    # -- what is known about the run -----------------------------------------------------------------------------

    def derived(self) -> dict[str, int]:
        """What follows from the settings, listed in comparisons as changed because of the variable."""
        return {
            "num_kv_blocks": self.pool.num_blocks,
            "max_position": self._max_position,
            "kv_pool_bytes": self.executor.kv_pool_bytes(),
            "kv_tail_bytes": self.executor.kv_tail_bytes(),
            "weights_bytes": self.loaded.weights.num_bytes(),
            "activation_peak_bytes": self.executor.activation_peak_bytes(),
        }

    def snapshot(self) -> dict[str, Any]:
        """The live state for a page: queue, blocks, requests and the memory ledger. Cheap enough for 4 a second."""
        from core_engine.live import snapshot

        return snapshot(self)

    def record(self) -> dict[str, Any]:
        """Raw events of everything that is kept; times in ns on the engine's clock."""
        from core_engine.live import record

        return record(self)

    def clear_history(self) -> None:
        """Let go of ended requests and of the trace; the prefix cache stays."""
        self.sessions.forget([session.request for session in self.sessions.ended.values()])
        self.trace.clear()
        self.scheduler.num_preemptions = 0
        self.speculation.clear()
        self.scheduler.layout.restate(self.scheduler.running)


def _namespace(loaded: LoadedModel, form: KVFormat) -> str:
    """Everything besides tokens that KV depends on: weights and their format, sizes, rope, number format."""
    return namespace(
        model=loaded.name,
        weights=loaded.scheme,
        spec=loaded.decoder.spec,
        kv_dtype=form.text(),
        adapter=None,
    )
