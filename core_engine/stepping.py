"""SteppingEngine: glue between requests, scheduler, executor and text, a step at a time.

Owns the order of a step: drafts, plan, execution, commit. Who waits for whole answers is in core_engine.engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from core_engine.admission import admission_policy
from core_engine.answer_cache import AnswerCaches, CacheAsk, Hit, Pending, make_caches, settings_of_an_answer
from core_engine.blocks import BlockPool
from core_engine.clock import Clock, MonotonicClock
from core_engine.config import EngineConfig
from core_engine.environment import describe
from core_engine.executor.base import CaptureCost, Executor
from core_engine.executor.make import make_executor
from core_engine.flights import Flight, Flights
from core_engine.intake import RateLimit, refuse_full_queue, refuse_prompt, whole_ids
from core_engine.kv.format import KVFormat
from core_engine.kv_layout import kv_layout
from core_engine.memory_readings import restart_peak
from core_engine.model.loader import LoadedModel
from core_engine.outputs import Output
from core_engine.parallel.executor import ParallelExecutor
from core_engine.parallel.told import describe_ranks
from core_engine.plan import StepPlan, StepResult
from core_engine.prefix import namespace
from core_engine.prompt_compression import PromptCompressor
from core_engine.request import Request, SamplingParams, State
from core_engine.scheduler import Fill, Scheduler
from core_engine.sessions import Session, Sessions
from core_engine.speculation.make import make_proposer
from core_engine.speculation.proposer import Proposer
from core_engine.speculation.speculation import Speculation
from core_engine.threads import bind_threads
from core_engine.trace import StepTimer, Trace


class SteppingEngine:
    """One model, one KV pool, one scheduler. Not thread-safe: add, abort and step from one thread."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        *,
        clock: Clock | None = None,
        executor: Executor | None = None,
        proposer: Proposer | None = None,
        caches: AnswerCaches | None = None,
    ) -> None:
        """proposer, caches: instead of those that the configuration names."""
        self.config = config
        self.caches = make_caches(config, loaded.tokenizer) if caches is None else caches
        shortens = config.prompt_compression == "on"
        self._compressor = PromptCompressor(loaded.tokenizer, config.prompt_keep) if shortens else None
        self._stored: deque[tuple[Session, Hit]] = deque()  # requests whose answer is there and not yet given
        self._to_keep: dict[str, Pending] = {}  # by request, what is needed to keep its answer
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        self.clock = clock or MonotonicClock()
        restart_peak()
        self.executor = executor or make_executor(config, loaded)
        form = KVFormat.from_config(config, loaded.weights.dtype)
        self.pool = BlockPool(self.executor.num_blocks, config.block_size)
        self._capacity = self.pool.num_blocks * self.pool.block_size
        self.max_position = loaded.decoder.spec.max_position
        self._most_tokens = min(self.max_position, self._capacity + 1)  # of a sequence, prompt included
        self.scheduler = Scheduler(
            kv_layout(config, self.pool, self.max_position),
            admission_policy(config),
            config.max_num_batched_tokens,
            chunked=config.chunked_prefill == "on",
            open_blocks=form.is_quantized,
        )
        self.trace = Trace()
        self._rate_limit = RateLimit(config.rate_limit_rps)
        proposer = make_proposer(config, loaded) if proposer is None else proposer
        self.speculation = Speculation(
            proposer, config.num_draft_tokens, self.clock, adaptive=config.draft_control == "adaptive"
        )
        if self.speculation.needs_hidden:
            self.executor.needs_hidden = True
        space = _namespace(loaded, form)
        self.sessions = Sessions(self.tokenizer, seed=config.seed, namespace=space)
        self._answer_space = space + settings_of_an_answer(config)
        not_bound = bind_threads(config.pin_threads, loaded.decoder)
        here = describe(loaded.weights.device, loaded.weights.dtype)
        quantizing = {} if loaded.quantizing is None else {"quantizing": asdict(loaded.quantizing)}
        self._flights = Flights(
            self.executor, self.scheduler, self._most_tokens, ahead=config.overlap == "on" and proposer is None
        )
        self.environment = {
            **here,
            **asdict(loaded.kernels),
            **quantizing,
            "pinned": not_bound or "yes",
            **_captured(self.executor),
            **(describe_ranks(self.executor) if isinstance(self.executor, ParallelExecutor) else {}),
        }
        self.beside_bytes = 0  # weights of other models in this process, told by who loaded them

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
        cache: CacheAsk | None = None,
    ) -> str:
        """Queue a prompt (text or token ids) and return its id; with params.n > 1 the id stands for all n samples.

        arrival_ns is the time the schedule says, now by default. cache: what the request allows of the answer caches,
        by default the exact one. A request that finds its answer there does not wait: the next step gives it.
        InputError when it can never fit, the queue is full or the rate limit is reached.
        """
        params = params or SamplingParams()
        return self.enqueue(prompt, params, request_id, arrival_ns, score_start=None, cache=cache)

    def enqueue(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int | None,
        score_start: int | None,
        cache: CacheAsk | None = None,
    ) -> str:
        """`add`; with score_start the tokens from there on are scored instead of continued."""
        start_ns = self.clock.now_ns()
        sent = self.tokenizer.encode(prompt) if isinstance(prompt, str) else whole_ids(prompt)
        ids = sent if score_start is not None else self.prompt_of(sent)
        refuse_prompt(
            ids,
            params,
            self.config,
            vocab_size=self.loaded.spec.vocab_size,
            max_position=self.max_position,
            capacity=self._capacity,
            scoring=score_start is not None,
        )
        params.check_vocabulary(self.loaded.spec.vocab_size)
        if score_start is None:
            self._rate_limit.take(start_ns)
        hit, pending = self._look(sent, params, cache or CacheAsk(), start_ns, scoring=score_start is not None)
        if hit is None:
            refuse_full_queue(len(self.scheduler.waiting), params.n, self.config.max_queue)
        arrival_ns = start_ns if arrival_ns is None else arrival_ns
        group, requests = self.sessions.open(ids, params, request_id, arrival_ns, start_ns, score_start)
        for request in requests:
            request.log.uncompressed_tokens = len(sent) if len(ids) < len(sent) else None
            if hit is not None:
                self._stored.append((self.sessions.live[request.id], hit))
                continue
            self.scheduler.add(request)
            if pending is not None:
                self._to_keep[request.id] = pending
        self.trace.host_ns.append((start_ns, self.clock.now_ns()))
        return group

    def _look(
        self, ids: list[int], params: SamplingParams, ask: CacheAsk, now_ns: int, *, scoring: bool
    ) -> tuple[Hit | None, Pending | None]:
        """What the answer caches have for a request, and what they need to keep its answer."""
        if self.caches is None or scoring:
            return None, None
        began_ns = self.clock.now_ns()  # what came before, encoding and shortening, is no look-up
        found = self.caches.look(self._answer_space, ids, params, ask, now_ns)
        if any(found):  # else nothing was looked for
            self.caches.lookup_ns.append(self.clock.now_ns() - began_ns)
        return found

    def prompt_of(self, ids: Sequence[int]) -> list[int]:
        """The prompt that is computed when these ids are sent: a shorter one with prompt_compression=on.

        The answer caches look for what was sent.
        """
        known = self.loaded.spec.vocab_size
        if self._compressor is None or any(not 0 <= token < known for token in ids):  # an unknown id is refused later
            return list(ids)
        return self._compressor.shorten(ids)

    def take_in(self, request: Request) -> None:
        """Queue a request that is known elsewhere; its answer goes on behind the tokens it has."""
        self.sessions.take_in(request)
        self.scheduler.add(request)

    def resume(self, request: Request, num_computed: int, fill: Fill) -> bool:
        """Run a request that is known elsewhere from KV that is brought along (Scheduler.resume), or leave it be."""
        if not self.scheduler.resume(request, num_computed, fill, self.clock.now_ns()):
            return False
        self.sessions.take_in(request)
        return True

    def hand_over(self, request: Request) -> None:
        """Let go of a running request that goes on elsewhere."""
        self.scheduler.finish(request, "handed over", self.clock.now_ns())
        self._ended(request)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self.scheduler.waiting)

    def abort(self, request_id: str) -> None:
        """Drop a request, all samples of it, at any time; one that has ended is left alone."""
        now_ns = self.clock.now_ns()
        for session in self.sessions.of(request_id):
            self.abort_one(session, now_ns)

    def abort_one(self, session: Session, now_ns: int) -> None:
        """Drop one sample; one that has ended is left alone."""
        request = session.request
        if request.finish_reason is None:
            if any(waiting is session for waiting, _ in self._stored):
                self._stored = deque(pair for pair in self._stored if pair[0] is not session)
                self._close(request, "abort", now_ns)
            else:
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
        return bool(self._stored) or self.scheduler.has_unfinished()

    @property
    def num_stored(self) -> int:
        """Requests that the next step gives a stored answer."""
        return len(self._stored)

    def step(self) -> list[Output]:
        """One step: plan, execute, commit. An empty list also when admission waits for more requests.

        Stored answers come first, in a step of their own that computes nothing and is not in the trace.
        """
        if self._stored:
            return [self._give(*self._stored.popleft()) for _ in range(len(self._stored))]
        timer = StepTimer(self.clock.now_ns(), self.scheduler.more_arrivals)
        flight = self._flights.arriving() or self._next_flight(timer)
        if flight is None:
            return []
        plan, timer.ahead = flight.plan, flight.ahead
        timer.execute_start_ns = timer.execute_start_ns or timer.plan_start_ns
        result = self._flights.land(flight, timer.plan_start_ns)
        timer.execute_end_ns = self.clock.now_ns()
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

    def _give(self, session: Session, hit: Hit) -> Output:
        """A stored answer as the one output of its request."""
        request, now_ns = session.request, self.clock.now_ns()
        answer = hit.answer
        output = session.answered(answer.token_ids, answer.logprobs, answer.finish_reason)
        request.log.emissions.append((now_ns, len(answer.token_ids)))
        request.log.admit_ns, request.log.cache = request.log.send_ns, hit.record()
        self.trace.output_tokens += len(answer.token_ids)
        if session.unread is not None:
            session.unread.append(output)
        self._close(request, answer.finish_reason, now_ns)
        self._ended(request)
        return output

    def _close(self, request: Request, reason: str, now_ns: int) -> None:
        """End a request that the scheduler never had."""
        request.finish_reason, request.state = reason, State.FINISHED
        request.log.finish_ns = request.log.release_ns = now_ns

    def _next_flight(self, timer: StepTimer) -> Flight | None:
        """Plan a step and launch it; None when there is nothing to compute yet."""
        timer.draft_ns = self.speculation.draft(
            self.scheduler.running, lambda request: self.scheduler.draft_room(request, self._most_tokens)
        )
        plan = self.scheduler.plan(timer.plan_start_ns)
        for request_id in plan.preempted:
            self.speculation.release(request_id, ended=False)
        if not plan.rows:
            return None
        timer.execute_start_ns = self.clock.now_ns()
        return self._flights.launch(plan)

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
        if self.caches is not None and request.id in self._to_keep:
            self.caches.store(self._to_keep[request.id], request, now_ns)
        self._ended(request)

    def _ended(self, request: Request) -> None:
        self._to_keep.pop(request.id, None)
        self.sessions.end(request)
        self.speculation.release(request.id, ended=True)


def _captured(executor: Executor) -> dict[str, Any]:
    """What a run's environment says of captured steps: nothing where none could be, what they took, or why there are
    none."""
    found = getattr(executor, "captured", None)
    return {} if found is None else {"captured": asdict(found) if isinstance(found, CaptureCost) else found}


def _namespace(loaded: LoadedModel, form: KVFormat) -> str:
    """Everything besides tokens that KV depends on: weights and their format, sizes, rope, number format."""
    return namespace(
        model=loaded.name,
        weights=loaded.scheme,
        spec=loaded.decoder.spec,
        kv_dtype=form.text(),
        adapter=None,
    )
