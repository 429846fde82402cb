"""Service: requests on their way from the event loop to the engine's thread and back.

Owns the arms' routing, what is counted, the log of events, and who is refused at the door. All of it runs on the
event loop; only `_from_thread` is called elsewhere, once a step, and hands over a list.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.server.canary import Canary
from experiments.server.engine_thread import EngineThread
from experiments.server.errors import Refusal, refusal_of
from experiments.server.events import Dropped, Emission, Event, Failed, Job, Rejected, Stepped
from experiments.server.gauges import add_gauges
from experiments.server.metrics import EngineMetrics, Metrics
from experiments.server.protocol import Asked, require_model
from experiments.server.replies import TokenTexts, Usage
from ledger.errors import InputError

LONG_TEXT = 4096  # characters: longer prompts are tokenized beside the loop, which would stand still meanwhile
LONGEST_RETRY_S = 60


class Gone(Exception):
    """The client has closed its connection."""


@dataclass
class _SampleTimes:
    first_ns: int
    last_ns: int
    own_first_ns: int
    own_last_ns: int
    num_first: int
    tokens: int


@dataclass(eq=False)
class Exchange:
    """One request and its events, in order, for whoever answers it."""

    job: Job
    usage: Usage
    num_choices: int
    num_ended: int = 0
    events: deque[Event] = field(default_factory=deque)
    times: dict[int, _SampleTimes] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)  # tiers that gave one of the answers
    gone: bool = False
    _waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        """Add an event; who waits wakes once the loop comes round."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Let `take` look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Event]:
        """All events that are there, at least one. Gone when the client went away."""
        while not self.events and not self.gone:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.gone:
            raise Gone
        found = list(self.events)
        self.events.clear()
        return found

    @property
    def is_over(self) -> bool:
        """Whether every sample has ended and was taken note of."""
        return self.num_ended == self.num_choices


class Service:
    """What the HTTP side talks to. log: as EngineThread's. canary: with two engines, who gets a request."""

    def __init__(
        self,
        make: Callable[[], Sequence[Any]],
        log: Callable[..., None],
        *,
        model_name: str | None = None,
        make_canary: Callable[[Callable[[], int], Callable[[dict[str, Any]], None]], Canary] | None = None,
    ) -> None:
        self.log = log
        self.stopping = False
        self.started_at = int(time.time())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exchanges: set[Exchange] = set()
        self._service_s = 1.0  # running mean of a request's time from its first step to its end
        self.thread = EngineThread(make, self._from_thread, log)
        self.thread.start()
        engine = self.thread.arms[0].engine
        self.tokenizer = engine.tokenizer
        self.texts = TokenTexts(self.tokenizer)
        self.max_position = engine.max_position
        self.model_name = model_name or engine.loaded.name
        self.canary = None if make_canary is None else make_canary(self.thread.now_ns, self._rolled_back)
        self.metrics = Metrics(self.model_name, len(self.thread.arms))
        add_gauges(self.metrics, self.thread, self.in_flight, self.canary)

    # -- requests ------------------------------------------------------------------------------------------------

    async def open(self, asked: Asked, arrival_ns: int) -> Exchange:
        """Queue a request. Refusal for what is known at the door; what only the engine knows comes as an event."""
        require_model(asked, self.model_name)
        if self.stopping:
            raise Refusal(503, "the server is stopping", code="stopping")
        prompts = await self._token_ids(asked)
        longest = max(map(len, prompts))
        if longest >= self.max_position:  # the engine would say so too, after looking at every token
            raise InputError("prompt", f"{longest} tokens", f"fewer than the model's {self.max_position} positions")
        # Not the room behind this prompt: then two questions of unlike length would ask for unlike answers, and the
        # semantic cache would keep them apart. The engine ends every answer at the model's last position anyway.
        params = asked.params(self.max_position)
        arm = 0 if self.canary is None else self.canary.choose()
        job = Job(
            f"{'chatcmpl' if asked.kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex}", arm, prompts, params, arrival_ns,
            self.thread.own_ns(arm, arrival_ns), cache=asked.cache,
        )  # fmt: skip
        exchange = Exchange(job, Usage(sum(map(len, prompts))), len(prompts) * params.n)
        job.receiver = exchange
        self._refuse_at_the_door(arm, exchange.num_choices)
        self._loop = asyncio.get_running_loop()
        self._exchanges.add(exchange)
        self.thread.submit(job)
        return exchange

    async def _token_ids(self, asked: Asked) -> list[Sequence[int]]:
        texts = [message["content"] for message in asked.messages or ()]
        length = sum(map(len, texts)) + sum(len(prompt) for prompt in asked.prompts)
        if length <= LONG_TEXT:
            return self._encode(asked)
        return await asyncio.to_thread(self._encode, asked)

    def _encode(self, asked: Asked) -> list[Sequence[int]]:
        if asked.messages is not None:
            return [self.tokenizer.apply_chat_template(asked.messages)]
        return [self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt for prompt in asked.prompts]

    def _refuse_at_the_door(self, arm: int, wanted: int) -> None:
        """A full queue needs no engine to say no. The engine refuses too, so this may let too many pass."""
        engine = self.thread.arms[arm]
        config, queued = engine.engine.config, self.thread.queued(arm)
        if wanted > config.max_queue:
            raise InputError("prompt", f"{wanted} answers at once", f"at most max_queue={config.max_queue}")
        if engine.load.running >= config.max_num_seqs and queued + wanted > config.max_queue:
            error = InputError("max_queue", queued + wanted, f"at most {config.max_queue} waiting requests")
            raise refusal_of(error, retry_after_s=self.retry_after_s(arm))

    def retry_after_s(self, arm: int) -> int:
        """Until the requests that wait now have probably begun, whole s."""
        slots = self.thread.arms[arm].engine.config.max_num_seqs
        return max(1, min(LONGEST_RETRY_S, math.ceil(self.thread.queued(arm) / slots * self._service_s)))

    def close(self, exchange: Exchange, *, gone: bool = False) -> None:
        """The answer is over, or its client is gone: then the engine drops what is left of it."""
        self._exchanges.discard(exchange)
        if gone:
            self.metrics.disconnects.inc()
        if not exchange.is_over:
            self.thread.abort(exchange.job)

    async def reset_prefix_cache(self) -> int:
        """Empty the prefix caches and the answer caches between two steps; returns the former's blocks."""
        return await _counted(self.thread.reset_prefix_cache)

    async def invalidate_answers(self, tags: Sequence[str] | None) -> int:
        """Let go of the stored answers with one of the tags, of all without any given; returns how many."""
        return await _counted(lambda done: self.thread.invalidate_answers(tags, done))

    # -- state ---------------------------------------------------------------------------------------------------

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are served, and what there is to say."""
        broken = self.thread.arms[0].broken
        if self.stopping:
            return False, {"status": "stopping", "reason": "the server is stopping"}
        if broken is not None or not self.thread.is_alive():
            return False, {"status": "unhealthy", "reason": broken or "the engine's thread has ended"}
        load, config = self.thread.arms[0].load, self.thread.arms[0].engine.config
        batching = {"batching": config.batching}
        if config.batching == "static":
            batching["batch_starts"] = f"when {config.max_num_seqs} requests wait, or the oldest has waited 1 s"
        return True, {"status": "ok", "running": load.running, "waiting": load.waiting, **batching}

    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._exchanges)

    def fail_in_flight(self, reason: str) -> None:
        """Answer every request now with a 503, whatever the engine is doing; it drops them after its step."""
        for exchange in list(self._exchanges):
            exchange.put(Failed(exchange.job, 503, reason))

    def stop(self) -> None:
        """End the engine's thread; what is still in flight is failed with a 503."""
        self.stopping = True
        self.thread.stop()

    def _rolled_back(self, why: dict[str, Any]) -> None:
        self.metrics.counter("trilemma:canary_rollbacks", "Roll-backs.", ("objective",)).labels(
            objective=why["objective"] or "engine"
        ).inc()
        self.log("canary_rolled_back", **why)

    # -- events --------------------------------------------------------------------------------------------------

    def _from_thread(self, events: list[Event]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._receive, events)

    def _receive(self, events: list[Event]) -> None:
        for event in events:
            try:
                self._count(event)
            except Exception as error:  # a fault of counting must not keep an answer from its client
                self.log("count_failed", error=f"{type(error).__name__}: {error}")
            if not isinstance(event, Stepped):
                event.job.receiver.put(event)
        if self.canary is not None:
            self.canary.judge(self.thread.arms[1].broken)

    def _count(self, event: Event) -> None:
        match event:
            case Stepped():
                self.metrics.engines[event.arm].stepped(event)
            case Emission():
                self._emitted(event.job.receiver, event)
            case Dropped():
                self.metrics.engines[event.job.arm].ended["abort"].inc(event.num_open)
            case Rejected() | Failed():
                self._not_answered(event.job.receiver, event)

    def _emitted(self, exchange: Exchange, event: Emission) -> None:
        job, metrics = event.job, self.metrics.engines[event.job.arm]
        count = len(event.token_ids)
        if event.admitted is None or event.admitted.cache is None:  # else nobody generated them
            metrics.generation_tokens.inc(count)
        exchange.usage.completion_tokens += count
        times = exchange.times.get(event.choice)
        if times is None:
            own_ns = event.own_ns
            exchange.times[event.choice] = times = _SampleTimes(event.at_ns, event.at_ns, own_ns, own_ns, count, count)
            self._began(exchange, event, metrics)
        else:
            metrics.itl.observe((event.at_ns - times.last_ns) / 1e9)
            self._judge(job.arm, "itl", event.own_ns - times.own_last_ns)
            times.last_ns, times.own_last_ns = event.at_ns, event.own_ns
            times.tokens += count
        if event.finish_reason is not None:
            exchange.num_ended += 1
            self._finished(job, event, times, metrics)

    def _began(self, exchange: Exchange, event: Emission, metrics: EngineMetrics) -> None:
        admitted, job = event.admitted, event.job
        metrics.ttft.observe((event.at_ns - job.arrival_ns) / 1e9)
        self._judge(job.arm, "ttft", event.own_ns - job.own_arrival_ns)
        if admitted is None:
            return
        if admitted.cache is None:
            metrics.prompt_tokens.inc(admitted.prompt_tokens)
        metrics.prompt_sizes.observe(admitted.prompt_tokens)
        metrics.queue.observe(admitted.queue_ns / 1e9)
        metrics.prefix_queries.inc(admitted.asked_tokens)
        metrics.prefix_hits.inc(admitted.hit_tokens)
        if admitted.cache is not None:
            metrics.answer_hits[admitted.cache].inc()
            exchange.cached.append(admitted.cache)
        if event.choice % job.params.n == 0:  # further samples find their own prompt, which is no saving to tell
            exchange.usage.cached_tokens += admitted.hit_tokens

    def _finished(self, job: Job, event: Emission, times: _SampleTimes, metrics: EngineMetrics) -> None:
        metrics.ended[event.finish_reason if event.finish_reason in metrics.ended else "error"].inc()
        metrics.e2e.observe((times.last_ns - job.arrival_ns) / 1e9)
        metrics.answer_sizes.observe(times.tokens)
        self._judge(job.arm, "e2e", times.own_last_ns - job.own_arrival_ns)
        if times.tokens > 1:
            metrics.tpot.observe((times.last_ns - times.first_ns) / 1e9 / (times.tokens - 1))
        if times.tokens > times.num_first:
            self._judge(job.arm, "tpot", (times.own_last_ns - times.own_first_ns) // (times.tokens - times.num_first))
        self._service_s += 0.1 * ((times.last_ns - times.first_ns) / 1e9 - self._service_s)
        if self.canary is not None:
            self.canary.ended(job.arm, failed=False)

    def _not_answered(self, exchange: Exchange, event: Rejected | Failed) -> None:
        left = exchange.num_choices - exchange.num_ended
        exchange.num_ended = exchange.num_choices
        if isinstance(event, Failed):
            self.metrics.engines[event.job.arm].ended["error"].inc(left)
        # What an engine does not take counts too: a candidate with less memory refuses what the other one answers.
        if self.canary is not None and not self.stopping:
            self.canary.ended(event.job.arm, failed=True)

    def _judge(self, arm: int, kind: str, ns: int) -> None:
        if self.canary is not None:
            self.canary.latency(arm, kind, ns / 1e9)


async def _counted(ask: Callable[[Callable[[int], None]], None]) -> int:
    """The number that the engine's thread answers with."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def answer(count: int) -> None:
        if not done.done():
            done.set_result(count)

    ask(lambda count: loop.call_soon_threadsafe(answer, count))  # type: ignore[arg-type]
    return await done
