"""RoutedEngine: two engines on one clock and one device, the small one in front.

Every request begins at the small model. Nothing is given out until its probe is over; then its answer goes on, or it is
dropped and the large model computes the request from the prompt (core_engine.routing.rule). Both step in turn, so the
time of the one is waiting time of the other: that is what sharing a device costs. Each has a KV pool of its own, of
kv_memory_mib.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core_engine.answer_cache import CacheAsk
from core_engine.clock import Clock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.base import Executor
from core_engine.intake import RateLimit
from core_engine.model.loader import LoadedModel
from core_engine.outputs import Completion, Output
from core_engine.plan import Watch
from core_engine.request import SamplingParams
from core_engine.routing import told
from core_engine.routing.rule import PROBE_TOKENS, Escalation
from ledger.errors import CannotRunError, InputError


@dataclass
class Probe:
    """A request whose small answer is not decided yet."""

    prompt: str | Sequence[int]
    params: SamplingParams
    cache: CacheAsk | None
    held: list[Output] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that the small model has chosen so far."""
        return sum(len(output.token_ids) for output in self.held)

    @property
    def logprobs(self) -> list[float]:
        """What it gave each of them."""
        return [one.chosen for output in self.held for one in output.logprobs]

    def joined(self) -> Output:
        """What was held back, as one output, with log-probabilities only where they were asked for."""
        last = self.held[-1]
        return last._replace(
            token_ids=[token for output in self.held for token in output.token_ids],
            text="".join(output.text for output in self.held),
            logprobs=() if self.params.logprobs is None else tuple(x for one in self.held for x in one.logprobs),
        )


class RoutedEngine(Engine):
    """The engine of a configuration with router=small-first; the large model's is the base class."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        small: Engine,
        *,
        clock: Clock,
        executor: Executor | None = None,
    ) -> None:
        """small: the engine in front, on the same clock."""
        super().__init__(config, loaded, clock=clock, executor=executor)
        self._rate_limit = RateLimit(0.0)  # the door is the small engine's
        self.small = small
        self.rule = Escalation(config.router_threshold)
        self._more = small.scheduler.more_arrivals
        self._probes: dict[str, Probe] = {}
        self.decisions: dict[str, dict[str, Any]] = {}  # request -> what the record says of it
        self._bare: set[str] = set()  # small answers that go on for somebody who asked for no log-probabilities

    # -- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
        cache: CacheAsk | None = None,
    ) -> str:
        """See SteppingEngine.add; InputError also for several samples of one prompt."""
        params = params or SamplingParams()
        if params.n > 1:
            raise InputError("n", params.n, "1 with router=small-first, which decides answer by answer")
        told_of = params if params.logprobs is not None else replace(params, logprobs=0)
        name = self.small.add(prompt, told_of, request_id=request_id, arrival_ns=arrival_ns, cache=cache)
        self._probes[name] = Probe(prompt, params, cache)
        return name

    @property
    def num_waiting(self) -> int:
        """Requests in both queues."""
        return self.small.num_waiting + len(self.scheduler.waiting)

    def abort(self, request_id: str) -> None:
        """Drop a request at any time, wherever it is."""
        self._probes.pop(request_id, None)
        if self.is_escalated(request_id):
            super().abort(request_id)
        else:
            self.small.abort(request_id)

    def is_escalated(self, request_id: str) -> bool:
        """Whether the large model answers it."""
        return bool(self.decisions.get(request_id, {}).get("escalated"))

    def expect_more_arrivals(self, more: bool) -> None:
        """Whether anyone is scheduled to come; to the large model also what the small one has not decided may come."""
        self._more = more
        self.small.expect_more_arrivals(more)

    def has_unfinished(self) -> bool:
        """Whether a step of either would have work."""
        return self.small.has_unfinished() or super().has_unfinished()

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self) -> list[Output]:
        """A step of the small model, then one of the large, each where it has work."""
        outputs: list[Output] = []
        if self.small.has_unfinished():
            before = self.small.trace.num_steps
            brought = self.small.step()
            self.trace.num_steps += self.small.trace.num_steps - before  # drivers wait where no step was made
            for output in brought:
                outputs += self._from_small(output)
        if super().has_unfinished():
            self.scheduler.more_arrivals = self._more or bool(self._probes)
            outputs += super().step()
        return outputs

    def _advance(self) -> None:
        """A step for a caller that waits, so that nobody else comes before it."""
        before = self._more
        self.expect_more_arrivals(False)
        try:
            self.step()
        finally:
            self.expect_more_arrivals(before)

    def _from_small(self, output: Output) -> list[Output]:
        probe = self._probes.get(output.request_id)
        if probe is None:
            return [output._replace(logprobs=()) if output.request_id in self._bare else output]
        probe.held.append(output)
        if not output.finished and probe.tokens < PROBE_TOKENS:
            return []
        del self._probes[output.request_id]
        return self._decide(output.request_id, probe)

    def _decide(self, name: str, probe: Probe) -> list[Output]:
        logprobs = probe.logprobs
        mean = self.rule.mean(logprobs)
        decision: dict[str, Any] = {"escalated": False, "probe_tokens": probe.tokens, "mean_logprob": mean}
        self.decisions[name] = decision
        if not self.rule.keeps(logprobs):
            request = self.small.sessions.of(name)[0].request
            try:
                super().add(
                    probe.prompt, probe.params, request_id=name, arrival_ns=request.log.arrival_ns, cache=probe.cache
                )
            except InputError as error:  # the large one has no room for it: an unsure answer is better than none
                decision["not_escalated"] = str(error)
            else:
                taken = self.sessions.of(name)[0].request
                # It was sent once, and draws what it would draw without a router.
                taken.log.send_ns, taken.seed = request.log.send_ns, request.seed
                decision["escalated"] = True
                self.small.abort(name)
                return []
        if probe.params.logprobs is None:
            self._bare.add(name)
        joined = probe.joined()
        # Emissions are stamped when somebody gets them.
        log = self.small.sessions.of(name)[0].request.log
        log.emissions[:] = [(self.clock.now_ns(), len(joined.token_ids))]
        return [joined]

    # -- whole answers and scores --------------------------------------------------------------------------------

    def completions(self, request_id: str) -> list[Completion]:
        """The answer of a finished request, of whoever gave it."""
        if self.is_escalated(request_id):
            return super().completions(request_id)
        found = self.small.completions(request_id)
        return [replace(one, logprobs=[]) for one in found] if request_id in self._bare else found

    def generate(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[Completion]:
        """See Answers.generate."""
        names: list[str] = []
        try:
            for prompt in prompts:
                while self.num_waiting >= self.config.max_queue:
                    self._advance()
                names.append(self.add(prompt, params))
            while self.has_unfinished():
                self._advance()
            return [self.completion(name) for name in names]
        except BaseException:
            for name in names:
                self.abort(name)
            raise

    def stream(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Iterator[Output]:
        """See Answers.stream; outputs of other requests meanwhile are not kept."""
        name, unread, finished = self.add(prompt, params), deque[Output](), False
        try:
            while not finished:
                unread.extend(output for output in self.step() if output.request_id == name)
                while unread:
                    output = unread.popleft()
                    finished = output.finished
                    yield output
        finally:
            if not finished:
                self.abort(name)

    def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Log-probabilities by whoever the rule would let go on with this text."""
        scores = self.small.score(token_ids, start)
        return scores if self.rule.keeps(scores) else super().score(token_ids, start)

    def add_score(self, token_ids: Sequence[int], start: int, watch: Watch | None = None) -> str:
        """See Answers.add_score; CannotRunError for a watch: a choice that nobody answers has no probe to decide by."""
        if watch is not None:
            raise CannotRunError("router=small-first: it decides by an answer, and choices are scored; use off")
        return super().add_score(token_ids, start)

    # -- what is known about the run -----------------------------------------------------------------------------

    def reset_prefix_cache(self) -> int:
        """Of both."""
        return self.small.reset_prefix_cache() + super().reset_prefix_cache()

    def derived(self) -> dict[str, int]:
        """Sizes of both together."""
        return told.derived(self, super().derived())

    def snapshot(self) -> dict[str, Any]:
        """The large model's live state, with what both have of requests and tokens."""
        return told.snapshot(self, super().snapshot())

    def record(self) -> dict[str, Any]:
        """One record of both; see core_engine.routing.told."""
        return told.record(self, super().record())

    def clear_history(self) -> None:
        """Let go of what ended, in both."""
        self.small.clear_history()
        super().clear_history()
        live = {*self.small.sessions.live, *self.sessions.live}
        self.decisions = {name: found for name, found in self.decisions.items() if name in live}
        self._bare &= live
