"""Engine: whole answers, scores and records on top of stepping. Usable without the rest of the project.

engine = Engine(config, load_model(config))
engine.generate(["The capital of France is"], SamplingParams(max_tokens=8))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from core_engine.accounts import predicted_ledger
from core_engine.intake import whole_ids
from core_engine.outputs import Completion, Output
from core_engine.parallel.executor import ParallelExecutor
from core_engine.plan import Watch
from core_engine.request import SamplingParams, State
from core_engine.sessions import Session
from core_engine.stepping import SteppingEngine
from ledger.errors import InputError
from ledger.memory import MemoryLedger

__all__ = ["Completion", "Engine", "Output"]


class Engine(SteppingEngine):
    """One model, one KV pool, one scheduler. Not thread-safe: add, abort and step from one thread.

    Ended requests and steps are kept for `record` up to a bound, and let go by `clear_history`.
    """

    # -- whole answers -------------------------------------------------------------------------------------------

    @contextmanager
    def _own(self) -> Iterator[list[Session]]:
        """A list for the sessions a caller waits for; those that are not finished when it leaves are aborted."""
        own: list[Session] = []
        try:
            yield own
        finally:
            for session in own:
                self.abort_one(session, self.clock.now_ns())

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
        request_id = self.enqueue(ids, SamplingParams(max_tokens=1), None, None, score_start=int(start))
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

    def reset_prefix_cache(self) -> int:
        """Let the next requests find no prefix; what runs goes on. Returns the blocks that could have been found."""
        return self.scheduler.layout.forget_prefixes()

    # -- what is known about the run -----------------------------------------------------------------------------

    @cached_property
    def predicted(self) -> MemoryLedger:
        """What the ledger says of these settings."""
        return predicted_ledger(self)

    def derived(self) -> dict[str, int]:
        """What follows from the settings, listed in comparisons as changed because of the variable."""
        return {
            "num_kv_blocks": self.pool.num_blocks,
            "max_position": self.max_position,
            "kv_pool_bytes": self.executor.kv_pool_bytes(),
            "kv_tail_bytes": self.executor.kv_tail_bytes(),
            "weights_bytes": self.loaded.weights.num_bytes(),
            "activation_peak_bytes": self.executor.activation_peak_bytes(),
            "ranks": len(self.executor.parts) if isinstance(self.executor, ParallelExecutor) else 1,
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
        if isinstance(self.executor, ParallelExecutor):
            self.executor.counters.clear()
        self.scheduler.num_preemptions = 0
        self.speculation.clear()
        self.scheduler.layout.restate(self.scheduler.running)
