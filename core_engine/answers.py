"""Answers: whole answers and scores for callers that wait, on top of an engine that is stepped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core_engine.clock import Clock
from core_engine.config import EngineConfig
from core_engine.intake import whole_ids
from core_engine.outputs import Completion, Output
from core_engine.plan import Watch
from core_engine.request import SamplingParams, State
from core_engine.sessions import Session, Sessions
from ledger.errors import InputError


class Answers(ABC):
    """What follows from the abstract methods below: a mixin of every engine."""

    config: EngineConfig
    sessions: Sessions
    clock: Clock

    @property
    def num_stored(self) -> int:
        """Requests that the next step gives a stored answer; only an engine with caches has any."""
        return 0

    @abstractmethod
    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
    ) -> str:
        """Queue a prompt and return its id."""

    @abstractmethod
    def enqueue(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int | None,
        score_start: int | None,
    ) -> str:
        """`add`; with score_start the tokens from there on are scored instead of continued."""

    @abstractmethod
    def abort_one(self, session: Session, now_ns: int) -> None:
        """Drop one sample; one that has ended is left alone."""

    @abstractmethod
    def step(self) -> list[Output]:
        """Go on; what came out meanwhile."""

    @property
    @abstractmethod
    def num_waiting(self) -> int:
        """Requests that nobody computes yet."""

    @contextmanager
    def _own(self) -> Iterator[list[Session]]:
        """A list for the sessions a caller waits for; those that are not finished when it leaves are aborted."""
        own: list[Session] = []
        try:
            yield own
        finally:
            for session in own:
                self.abort_one(session, self.clock.now_ns())

    def prompt_of(self, ids: Sequence[int]) -> list[int]:
        """The prompt that is computed when these ids are sent."""
        return list(ids)

    def _advance(self) -> None:
        """A step for a caller that waits."""
        self.step()

    def generate(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[Completion]:
        """Answer all prompts and return when the last is done, in the order of the prompts; samples stand together.

        Computes while the queue is full. When it raises, none of its prompts stays behind.
        """
        params = params or SamplingParams()
        with self._own() as own:
            for prompt in prompts:
                while self.num_waiting and self.num_waiting + params.n > self.config.max_queue:
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
